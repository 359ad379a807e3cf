"""The executor: every call ends in a typed result, at its deadline at the latest, whatever the tool does.

A call passes: look-up, validation, cache (`Executor.invoke_from`), permits, breaker, attempts, budget (`OpenTool.run`).
These two are the way of every call, whatever the kind of its tool.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rlf.core import RlfError, nearest
from rlf.core.clocks import begin_wait, end_wait
from rlf.core.meter import Meter
from rlf.core.redact import Redactor, clean
from rlf.core.text import shorten
from rlf.tools.declaration import CacheScope, Coercion, ToolDeclaration
from rlf.tools.execution.cache import CacheKey, RunCache, canonical_arguments
from rlf.tools.execution.gate import ConcurrencyGate, LoopMonitor, affordable_calls
from rlf.tools.execution.open_tool import Course, OpenTool, Surroundings, refused_call
from rlf.tools.kind import CallOrigin, LimitScope
from rlf.tools.results import MAX_NAME_CHARS, CountTokens
from rlf.types import Outcome, ToolCall, ToolDescription, ToolInvoker, ToolResult

if TYPE_CHECKING:
    from rlf.tools.execution.tape import AnsweredCall, DiskCache, Tape, TapeWriter

logger = logging.getLogger(__name__)


def _open_tape(file: Path) -> TapeWriter:
    from rlf.tools.execution.tape import TapeWriter

    return TapeWriter(file)


class Executor:
    """Runs calls of declared tools: `async with Executor(declarations) as executor`. A `ToolInvoker`."""

    def __init__(
        self,
        declarations: Sequence[ToolDeclaration],
        *,
        seed: int = 0,
        max_concurrency: int | None = None,
        count_tokens: CountTokens | None = None,
        redact: Callable[[str], str] | None = None,
        notify: Callable[[str, str], None] | None = None,
        record: Path | None = None,
        record_rewards: Path | None = None,
        replay: Tape | None = None,
        meter: Meter | None = None,
        elsewhere: ToolInvoker | None = None,
    ) -> None:
        """Takes the tools and what they share; nothing is opened yet.

        Args:
            max_concurrency: calls of all tools that run at once; None: as many as each tool's own limit lets.
            count_tokens: tokens of a text for the run's model; without it output budgets are in characters alone.
            redact: strikes further secrets out of what tools say, beside the environment's and the declarations' own.
            notify: takes what whoever watches the run should know: a level and the words.
            record: file that every call and its result are appended to.
            record_rewards: file that the calls of reward terms are appended to, which no trajectory holds; it is made
                by the first of them. None: they are in `record`, or nowhere.
            replay: where results come from in place of the tools, which then are not even opened; a world's are, for
                their calls change the world.
            meter: counts what every call spends, as it does.
            elsewhere: runs the calls of tools with `limits.scope: job`, which are not opened here.
        """
        repeated = [name for name, count in Counter(d.name for d in declarations).items() if count > 1]
        if repeated:
            raise RlfError(f"tools: {repeated[0]!r} is declared twice; give each tool a name of its own")
        self._declarations = tuple(declarations)
        own = Redactor(os.environ, declared=[declaration.model_dump(mode="json") for declaration in declarations])
        self._around = Surroundings(
            seed=seed, count_tokens=count_tokens, redact=own.after(redact), notify=notify, meter=meter
        )
        self._max_concurrency = max_concurrency
        self._there = {d.name: d.hidden for d in declarations if elsewhere and d.limits.scope is LimitScope.JOB}
        """The tools that are opened elsewhere, and whether the model does not see them."""
        self._elsewhere = elsewhere if self._there else None
        self._tools: dict[str, OpenTool] = {}
        self._shown: dict[str, OpenTool] = {}
        """The tools that the model sees."""
        self._cache = RunCache()
        self._disk: DiskCache | None = None
        """None: no tool's results outlive the run."""
        self._record = record
        self._tape: TapeWriter | None = None
        self._record_rewards = record_rewards
        self._reward_tape: TapeWriter | None = None
        self._replay = replay
        self._stack = AsyncExitStack()
        self.monitor = LoopMonitor(notify)

    @cached_property
    def descriptions(self) -> tuple[ToolDescription, ...]:
        """What the model sees of the tools, in the order of the spec; hidden tools are left out."""
        return tuple(declaration.description_for_model for declaration in self._declarations if not declaration.hidden)

    @property
    def num_abandoned(self) -> int:
        """How many calls are abandoned and still run."""
        return sum(tool.num_abandoned for tool in self._tools.values())

    @property
    def plays_back(self) -> bool:
        """Whether results come from a recording."""
        return self._replay is not None

    async def __aenter__(self) -> Self:
        """Opens every tool. Raises RlfError with every tool that does not fit its schema."""
        here = [declaration for declaration in self._declarations if declaration.name not in self._there]
        if self._replay is not None:
            here = [declaration for declaration in here if not declaration.target.is_played_back]
            if not here:
                return self
        for declaration in here:
            await declaration.target.prepare()
        refuse_misfits(here)  # before any is opened: a fault of the last must not find a server of the first running
        async with AsyncExitStack() as stack:
            # Left in the other order: tools first, whose last calls may still be kept on disk and taped.
            if any(declaration.cache.scope is CacheScope.FOREVER for declaration in here):
                from rlf.tools.execution.tape import DiskCache

                self._disk = DiskCache()
                stack.push_async_callback(self._disk.close)
            if self._record is not None and self._replay is None:
                self._tape = _open_tape(self._record)
                stack.callback(self._tape.close)
            self._around = replace(self._around, gate=self._shared_gate())
            for declaration in here:
                # Taken before the tool is opened: an edit meanwhile must not have results kept under the new source.
                source_hash = declaration.source_hash
                try:
                    runtime = await declaration.target.open(declaration.limits)
                except RlfError as fault:  # without what it came from, which may hold secrets
                    raise RlfError(self._around.redact(str(fault))) from None
                tool = OpenTool(declaration, runtime, source_hash, self._around)
                stack.push_async_callback(tool.close)
                self._tools[declaration.name] = tool
                if not declaration.hidden:
                    self._shown[declaration.name] = tool
            self.monitor.start()
            stack.callback(self.monitor.close)
            self._stack = stack.pop_all()
        logger.info("opened %d tools", len(self._tools))
        return self

    def _shared_gate(self) -> ConcurrencyGate | None:
        """Permits over all tools, where the spec or the machine has fewer than the tools together."""
        declared = self._declarations
        alone = [one.limits.max_concurrency for one in declared if not one.target.shares_permits]
        shared = [one.limits.max_concurrency for one in declared if one.target.shares_permits]
        # Tools that share permits hold no more descriptors together than the one of them that may have most.
        wanted = sum(alone) + max(shared, default=0)
        if self._max_concurrency is not None:
            wanted = min(wanted, self._max_concurrency)
        affordable = affordable_calls(wanted)
        return None if self._max_concurrency is None and affordable == wanted else ConcurrencyGate(affordable)

    async def __aexit__(self, *_: object) -> None:
        """Closes every tool; never waits for a hung call."""
        await self._stack.aclose()
        if self._reward_tape is not None:
            self._reward_tape.close()
        logger.info("closed %d tools", len(self._tools))

    @property
    def for_rewards(self) -> ToolInvoker:
        """The door for reward terms, which may call hidden tools too."""
        return _EveryTool(self)

    def invoke(self, call: ToolCall, *, trajectory_id: str) -> Coroutine[Any, Any, ToolResult]:
        """Runs one call of the model. Cancelling it cancels the tool's work and frees its permit, see `ToolInvoker`.

        Raises:
            ReplayMiss: the recording that is played back lacks the call.
        """
        return self.invoke_from(call, CallOrigin(trajectory_id))

    async def invoke_from(self, call: ToolCall, origin: CallOrigin, *, also_hidden: bool = False) -> ToolResult:
        """Runs one call as `invoke` does: of an agent's model, or of a reward term, which may call hidden tools too."""
        if self._replay is not None and call.name not in self._tools:
            result = self._replay.answer(self._identify_call(call, origin.trajectory_id))
        else:
            course = Course(call.name, origin)
            begin_wait(course)  # also while it waits for a permit: a run that stalls can say in which tool
            try:
                tool = (self._tools if also_hidden else self._shown).get(call.name)
                if tool is None:
                    result = await self._call_elsewhere(call, course, also_hidden=also_hidden)
                elif (complaint := tool.arguments.complaint(call.arguments)) is not None:
                    result = await self._call_misfit(tool, call, course, complaint)
                elif tool.is_cached:
                    result = await self._call_cached(tool, call.arguments, course)
                else:
                    result = await tool.run(call.arguments, course)
            finally:
                end_wait(course)
            if self._tape is not None:
                self._tape.add(self._identify_call(call, origin.trajectory_id), result)
        return result

    def _identify_call(self, call: ToolCall, trajectory_id: str) -> AnsweredCall:
        from rlf.tools.execution.tape import AnsweredCall, arguments_text

        return AnsweredCall(trajectory_id, call.name, self._around.redact(arguments_text(call.arguments)))

    def record_for_reward(self, call: ToolCall, trajectory_id: str, result: ToolResult) -> None:
        """Records the call of a reward term."""
        if self._record_rewards is not None:
            self._reward_tape = self._reward_tape or _open_tape(self._record_rewards)
            self._reward_tape.add(self._identify_call(call, trajectory_id), result)

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Gives back what tools hold for a trajectory that is over."""
        for tool in self._tools.values():
            await tool.end_trajectory(trajectory_id)
        if self._elsewhere is not None:
            await self._elsewhere.end_trajectory(trajectory_id)

    async def _call_elsewhere(self, call: ToolCall, course: Course, *, also_hidden: bool) -> ToolResult:
        """A call of a tool that is opened elsewhere, with one of this executor's permits, or of one that is unknown."""
        is_hidden = self._there.get(call.name)
        if self._elsewhere is None or is_hidden is None or (is_hidden and not also_hidden):
            return self._refuse_unknown(call.name)
        gate, trajectory_id = self._around.gate, course.origin.trajectory_id
        if gate is None:
            return await self._elsewhere.invoke(call, trajectory_id=trajectory_id)
        if not gate.try_enter():
            await gate.enter(trajectory_id)
        try:
            return await self._elsewhere.invoke(call, trajectory_id=trajectory_id)
        finally:
            gate.leave()

    async def _call_misfit(self, tool: OpenTool, call: ToolCall, course: Course, complaint: str) -> ToolResult:
        """A call whose arguments do not satisfy inputSchema: with what they are read as, where the tool allows it."""
        is_coerced = tool.declaration.coerce is Coercion.SAFE
        arguments = tool.arguments.coerced(call.arguments) if is_coerced else None
        if arguments is None:
            return refused_call(Outcome.INVALID_ARGUMENTS, f"invalid arguments for {call.name}: {complaint}")
        return replace(await self._call_cached(tool, arguments, course), coerced=True)

    async def _call_cached(self, tool: OpenTool, arguments: Mapping[str, Any], course: Course) -> ToolResult:
        """The call, or the tool's earlier answer to it where the declaration lets one do."""
        text = canonical_arguments(arguments) if tool.is_cached else None
        if text is None:
            return await tool.run(arguments, course)
        key = CacheKey(tool.declaration.name, tool.source_hash, text)

        async def from_disk(disk: DiskCache) -> ToolResult:
            kept = await disk.get(key)
            if kept is not None:
                return tool.shown_again(kept)
            result = await tool.run(arguments, course)
            if result.outcome is Outcome.OK:
                await disk.put(key, result)
            return result

        if self._disk is not None and tool.declaration.cache.scope is CacheScope.FOREVER:
            return await self._cache.get(key, partial(from_disk, self._disk))
        return await self._cache.get(key, lambda: tool.run(arguments, course))

    def _refuse_unknown(self, name: str) -> ToolResult:
        known = [one.name for one in self.descriptions]
        # Made up by the model: it may hold a secret that a result has shown it, and be of any length.
        name = shorten(self._around.redact(clean(name)), MAX_NAME_CHARS)
        text = f"no tool {name!r}{nearest(name, known)} (known: {', '.join(known) or 'none'})"
        return refused_call(Outcome.UNKNOWN_TOOL, self._around.redact(text))


class _EveryTool:
    """An executor whose hidden tools can be called. A `ToolInvoker`."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def descriptions(self) -> tuple[ToolDescription, ...]:
        return tuple(declaration.description_for_model for declaration in self._executor._declarations)

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        result = await self._executor.invoke_from(call, CallOrigin(trajectory_id), also_hidden=True)
        self._executor.record_for_reward(call, trajectory_id, result)
        return result

    async def end_trajectory(self, trajectory_id: str) -> None:
        await self._executor.end_trajectory(trajectory_id)


def refuse_misfits(declarations: Sequence[ToolDeclaration]) -> None:
    """Raises RlfError with every mismatch between a tool and its inputSchema."""
    misfits = [
        f"tool {declaration.name!r}: {complaint}"
        for declaration in declarations
        for complaint in [
            *(f"files: {file}: no such file. Correct the path." for file in declaration.missing_files()),
            *declaration.target.complaints(declaration.input_schema),
        ]
    ]
    if misfits:
        raise RlfError("\n".join(misfits))
