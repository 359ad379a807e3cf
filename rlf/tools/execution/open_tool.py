"""One tool, ready for calls: its permits, its attempts, its deadline, its breaker."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rlf.core import derive_seed
from rlf.core.clocks import Deadline, TimeLimit, Timers, clock
from rlf.core.meter import Meter
from rlf.core.redact import clean
from rlf.core.text import MAX_FAULT_CHARS, describe, shorten, size_bytes
from rlf.tools.declaration import CacheScope, ToolDeclaration
from rlf.tools.execution.detached import CancelledItself, DetachedTasks
from rlf.tools.execution.gate import FAILURES, TASK_PREFIX, Breaker, ConcurrencyGate
from rlf.tools.kind import MAX_ABANDONED, CallContext, CallOrigin, ToolRuntime
from rlf.tools.results import CountTokens, OutputBudget, ToolFailure, failure_by
from rlf.tools.validate import ArgumentCheck, OutputCheck
from rlf.types import Attempt, InnerTurn, Outcome, ToolOutput, ToolResult

if TYPE_CHECKING:
    from rlf.tools.execution.windows import Window

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.05
"""Upper bound of the pause before the first retry; it doubles with each further one."""
_RETRIED = FAILURES | {Outcome.TOOL_ERROR, Outcome.OUTPUT_REJECTED}
"""What another attempt may change; only tools declared idempotent have one."""
_LOST = frozenset({Outcome.TIMEOUT, Outcome.UNKNOWN, Outcome.UNREACHABLE, Outcome.SERVICE_ERROR})
"""Ends of an attempt that may have been carried out."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings and services that all tools of an executor share."""

    seed: int = 0
    meter: Meter | None = None
    """Counts what all calls spend."""
    gate: ConcurrencyGate | None = None
    """Permits over all tools; None: each tool's own alone count."""
    count_tokens: CountTokens | None = None
    redact: Callable[[str], str] = str
    """Strikes secrets out of what a tool says, before the model, the log or the lineage has it."""
    notify: Callable[[str, str], None] | None = None
    """Takes a level and a message for people who watch the run."""


class Ending(NamedTuple):
    """How one attempt ended: the result, or the error in words."""

    outcome: Outcome
    text: str
    output: ToolOutput | None = None
    """What the tool gave back, if it did."""
    retry_after_s: float = 0.0
    """How long the tool's host asks to be left alone."""


@dataclass(slots=True, eq=False)
class Course:
    """One call in progress: its attempts so far, the time that was not its own, an agent's turns. A `Wait`."""

    name: str
    origin: CallOrigin
    since: float = field(default_factory=perf_counter)
    call_id: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    outside_s: float = 0.0
    """Time to get ready and in queues of the runtime's own."""
    inner: list[InnerTurn] = field(default_factory=list)

    @property
    def what(self) -> str:
        """The call, for reports of what is waited for."""
        return f"tool {self.name} ({self.origin.trajectory_id})"

    def usage(self) -> Mapping[str, float]:
        """The usage of all attempts."""
        total = Meter()
        for attempt in self.attempts:
            total.add(attempt.usage)
        return total.usage


class OpenTool:
    """A declared tool and its runtime."""

    def __init__(
        self, declaration: ToolDeclaration, runtime: ToolRuntime, source_hash: str, around: Surroundings
    ) -> None:
        limits = declaration.limits
        self.declaration = declaration
        self.runtime = runtime
        self.source_hash = source_hash
        self.arguments = ArgumentCheck(declaration.input_schema, around.redact)
        self.budget = OutputBudget(limits, around.count_tokens, around.redact)
        self._around = around
        self._output = None if declaration.output_schema is None else OutputCheck(declaration.output_schema)
        windows: list[Window] = []
        if limits.rate is not None:
            from rlf.tools.execution.windows import make_windows

            windows = make_windows(limits.rate)
        self._gate = ConcurrencyGate(declaration.target.concurrency(limits), windows)
        self._breaker = None if limits.breaker is None else Breaker(limits.breaker)
        self._gone = ""
        """Why the last call found that nobody has to wait for the tool; calls that are refused give it too."""
        self._holds_trajectories = type(runtime).end_trajectory is not ToolRuntime.end_trajectory
        self._gets_ready = type(runtime).make_ready is not ToolRuntime.make_ready
        self._abandons = type(runtime).num_abandoned is not ToolRuntime.num_abandoned
        """Whether the runtime itself may leave work behind, beside that of `_detached`."""
        self._detached = DetachedTasks()
        self._timers = Timers()
        self._task_name = f"{TASK_PREFIX}{declaration.name}"
        self._timeout_s, self._num_retries, self._idempotent = limits.timeout_s, limits.retries, declaration.idempotent
        self._num_by_caller: dict[str, dict[str, int]] = {}
        """Calls so far, by trajectory and by who made them there."""
        self.is_cached = declaration.cache.scope is not CacheScope.NONE

    @property
    def num_abandoned(self) -> int:
        """Calls that were given up and whose work still runs."""
        return self._detached.num_abandoned + self.runtime.num_abandoned

    async def run(self, arguments: Mapping[str, Any], course: Course) -> ToolResult:
        """Runs one call with valid arguments to its end or its deadline, which counts from its permits."""
        # The tool's own permit first: who waits for it must not hold one of those that all tools share. A call inside
        # of an agent's takes none of these: it could wait for the very permit that the agent's call holds.
        gate, shared, asked = self._gate, None if course.origin.depth else self._around.gate, 0.0
        if not gate.try_enter():
            asked = perf_counter()
            await gate.enter(course.origin.trajectory_id)
        try:
            if shared is not None and not shared.try_enter():
                asked = asked or perf_counter()
                await shared.enter(course.origin.trajectory_id)
            try:
                return await self._call_with_permit(arguments, course, perf_counter() - asked if asked else 0.0)
            finally:
                if shared is not None:
                    shared.leave()
        finally:
            gate.leave()

    def shown_again(self, kept: ToolResult) -> ToolResult:
        """A result that was kept whole, within this run's budget."""
        shown = self.budget.show(kept.text if kept.original is None else kept.original)
        return replace(kept, **shown._asdict(), cached=True, attempts=(), queue_s=0.0, run_s=0.0, usage={})

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Gives back what is held for one trajectory; what goes wrong there is logged."""
        self._num_by_caller.pop(trajectory_id, None)  # names of calls are unique in a trajectory, which is over
        if not self._holds_trajectories:
            return
        end = self.runtime.end_trajectory(trajectory_id)
        fault = await self._detached.fault_of(end, self._timeout_s, self._task_name)
        if fault is not None:
            reason = self._say_error(describe(fault))
            logger.warning("tool %s: end of trajectory %s: %s", self.declaration.name, trajectory_id, reason)

    async def close(self) -> None:
        """Gives back what the tool holds; what cannot be stopped is left behind, with a warning."""
        self._gate.close()
        await self._detached.close()  # while what its calls use is still there for them to give back
        try:
            await self.runtime.close()
        except ToolFailure as failure:
            logger.warning("tool %s: %s", self.declaration.name, self._say_error(failure.text))
        if self.num_abandoned:
            logger.warning(
                "tool %s: %d calls still hang and are left behind", self.declaration.name, self.num_abandoned
            )

    async def _call_with_permit(self, arguments: Mapping[str, Any], course: Course, queue_s: float) -> ToolResult:
        # Asked with the permit in hand: while a call waited in the queue the tool may have gone, or come back.
        breaker, reason = self._breaker, None
        num_abandoned = self.num_abandoned if self._abandons or self._detached.left_at else 0
        if num_abandoned >= MAX_ABANDONED:  # a bound on what hangs: each holds memory, a thread or a connection
            reason = f"{num_abandoned} calls hang in it"
        elif breaker is not None and breaker.probe_at is not None:
            reason = breaker.refuses()
        if reason is not None:
            outcome = Outcome.GONE if self._gone else Outcome.CIRCUIT_OPEN
            return refused_call(outcome, self._gone or f"{self.declaration.name} is out of order: {reason}")
        if self.runtime.names_calls:
            # Unique among the calls of a run: those of a trajectory are counted by tool and agent's call.
            caller = course.origin.call_id or course.origin.trajectory_id
            numbers = self._num_by_caller.setdefault(course.origin.trajectory_id, {})
            number = numbers[caller] = numbers.get(caller, 0) + 1
            course.call_id = f"{caller}/{self.declaration.name}.{number}"
        started, limit_at = perf_counter(), clock.now() + self._timeout_s if self._num_retries else 0.0
        try:
            ending = await self._run_attempt(arguments, self._timeout_s, course)
            if ending.outcome is not Outcome.OK:
                ending = await self._retry(ending, arguments, limit_at, course)
        except asyncio.CancelledError:
            if breaker is not None:  # or the one call that was let through to try would block all others
                breaker.forget()
            # What the call has spent is not lost with its trajectory: who records that reads it off the cancellation.
            raise self._make_result(_CUT_OFF, course, queue_s, started).as_cancellation() from None
        self._gone = ending.text if ending.outcome is Outcome.GONE else ""
        result = self._make_result(ending, course, queue_s, started)
        if usage := result.usage:
            self._gate.spend(usage.get("prompt_tokens", 0.0) + usage.get("completion_tokens", 0.0))
        if breaker is not None and breaker.note(ending.outcome, started):
            self._report_opening(ending)
        return result

    def _report_opening(self, ending: Ending) -> None:
        words = self._say_error(ending.text)
        text = f"tool {self.declaration.name}: too many calls failed in a row; calls are refused. The last: {words}"
        logger.warning("%s", text)
        if self._around.notify is not None:
            self._around.notify("warning", text)

    async def _run_attempt(self, arguments: Mapping[str, Any], left_s: float, course: Course) -> Ending:
        """How one attempt ends. It is added to the course, also where it is cancelled."""
        # Each attempt has a meter of its own that adds to the trajectory's, so that one cut off half way has counted.
        runtime, (trajectory_id, depth, _, outer) = self.runtime, course.origin
        started, meter = perf_counter(), Meter(outer or self._around.meter)
        is_limited = runtime.ends_when_cancelled and not runtime.ends_in_time
        deadline = TimeLimit(left_s, self._timers) if is_limited else Deadline(left_s)
        ending, num_pauses = _CUT_OFF, 0
        try:
            if self._gets_ready:
                with deadline.waiting():
                    await runtime.make_ready(trajectory_id)
            num_pauses = clock.num_pauses  # of the call's own time: a pause while it got ready is not its matter
            wants_json = self._output is not None
            context = CallContext(
                trajectory_id,
                left_s,
                depth,
                self._idempotent,
                wants_json,
                course.call_id,
                meter,
                deadline,
                course.inner,
            )
            # The cheapest way that holds: a task of its own (`detached`) is for code that may swallow its cancellation.
            if runtime.ends_in_time:
                ending = await self._invoke_guarded(arguments, context)
            elif isinstance(deadline, TimeLimit):
                with deadline:
                    ending = await self._invoke_guarded(arguments, context)
            else:
                work = self._invoke_guarded(arguments, context)
                ending = await self._detached.run(work, deadline, self._task_name)
        except ToolFailure as failure:  # it cannot get ready: what a call raises stays in `_invoke_guarded`
            ending, num_pauses = _end_failed(failure), clock.num_pauses
        except CancelledItself:
            ending = Ending(Outcome.TOOL_ERROR, "the tool cancelled itself")
        except TimeoutError:
            logger.debug("tool %s: no result in time", self.declaration.name)
            ending = Ending(Outcome.TIMEOUT, f"{self.declaration.name} gave no result within {self._timeout_s:g} s")
        finally:
            # The deadline stands still while rlf is paused, but a service's does not: it may have hung up meanwhile.
            if ending.outcome is Outcome.TIMEOUT and clock.count_pauses() > num_pauses:
                ending = Ending(Outcome.INFRA, f"{ending.text}; rlf was stopped or the machine asleep meanwhile")
            run_s = perf_counter() - started - deadline.waited_s
            has_error = ending.outcome is not Outcome.OK and ending is not _CUT_OFF
            error = self._say_error(ending.text) if has_error else None
            course.attempts.append(Attempt(ending.outcome, run_s, error, meter.usage))
            course.outside_s += deadline.waited_s
        return ending

    async def _retry(self, ending: Ending, arguments: Mapping[str, Any], limit_at: float, course: Course) -> Ending:
        """How the last of further attempts ended, after pauses, for which the call's time suffices."""
        while ending.outcome in _RETRIED and (num_attempts := len(course.attempts)) <= self._num_retries:
            pause_s = backoff_s(num_attempts, derive_seed(self._around.seed, course.origin.trajectory_id))
            pause_s = max(pause_s, ending.retry_after_s)
            # Time outside, of getting ready and of queues, is given back: the limit is on the tool's work and pauses.
            end = limit_at + course.outside_s
            if clock.now() + pause_s >= end:
                break
            await asyncio.sleep(pause_s)
            await self._gate.again()
            ending = await self._run_attempt(arguments, end - clock.now(), course)
        if ending.outcome is Outcome.TOOL_ERROR and self.runtime.answers_once:
            lost = next((attempt for attempt in course.attempts if attempt.outcome in _LOST), None)
            if lost is not None:  # the verdict may be on what that attempt has done
                text = f"an attempt that failed ({lost.error}) may have been carried out; the last was refused: "
                return Ending(Outcome.UNKNOWN, text + ending.text)
        return ending

    async def _invoke_guarded(self, arguments: Mapping[str, Any], context: CallContext) -> Ending:
        """Lets nothing but a cancellation out: SystemExit on a task would stop the loop itself."""
        try:
            # The tool's own copy, so that one that changes its arguments changes neither the record nor the next
            # attempt. Nothing else of JSON can be changed, and most calls have none of these.
            if not _CHANGEABLE.isdisjoint(map(type, arguments.values())):
                arguments = copy.deepcopy(arguments)
            output = await self.runtime.invoke(arguments, context)
            if output.usage:
                context.meter.add(output.usage)
            text = clean(output.text)
            if output.is_error:
                return Ending(Outcome.TOOL_ERROR, text, output)
            complaint = None if self._output is None else self._output.complaint(output)
            if complaint is not None:
                return Ending(Outcome.OUTPUT_REJECTED, complaint)
            if output.images:
                from rlf.tools.outputs import check_images  # of few tools

                images, lines = check_images(output.images, self.declaration.limits)
                text, output = "\n".join([text, *lines] if text else lines), replace(output, images=images)
            return Ending(Outcome.OK, text, output)
        except asyncio.CancelledError:
            raise
        except ToolFailure as failure:
            return _end_failed(failure)
        except BaseException as fault:  # noqa: BLE001 - a tool may raise anything; the model reads what
            asks_a_service = self.runtime.isolation == "remote"  # by code of rlf's own, which judges no call by failing
            return Ending(Outcome.INFRA, describe(fault)) if asks_a_service else _end_failed(failure_by(fault))

    def _make_result(self, ending: Ending, course: Course, queue_s: float, started: float) -> ToolResult:
        output = ending.output or _NOTHING
        run_s = perf_counter() - started - course.outside_s
        if ending.outcome is Outcome.OK:  # the budget redacts before it cuts, since half a secret is not found
            text, truncated, size, sha256, original = self.budget.show(ending.text)
        else:
            text, truncated, sha256, original = f"error: {self._say_error(ending.text)}", False, "", None
            size = size_bytes(clean(ending.text))
        return ToolResult(
            ending.outcome,
            text,
            attempts=tuple(course.attempts),
            queue_s=queue_s + course.outside_s,
            run_s=run_s,
            truncated=truncated,
            size_bytes=size,
            sha256=sha256,
            original=original,
            isolation=output.isolation or self.runtime.isolation,
            images=output.images,
            structured=None if output.structured is None else self._redact_structured(output.structured),
            usage=course.attempts[0].usage if len(course.attempts) == 1 else course.usage(),
            inner=tuple(map(self._struck_turn, course.inner)) if course.inner else (),
        )

    def _struck_turn(self, turn: InnerTurn) -> InnerTurn:
        """A turn of an agent without secrets; the results of its calls have none."""
        calls = tuple(
            replace(made, call=replace(made.call, arguments=self._redact_structured(made.call.arguments) or {}))
            for made in turn.calls
        )
        redact = self._around.redact
        text, reasoning = redact(clean(turn.text)), redact(clean(turn.reasoning))
        return replace(turn, text=text, reasoning=reasoning, calls=calls)

    def _say_error(self, text: str) -> str:
        """An error as anyone reads it: valid, without secrets, and cut where none can be halved any more."""
        return shorten(self._around.redact(clean(text[:MAX_FAULT_CHARS])))

    def _redact_structured(self, structured: Any) -> Any:
        """The structured result without secrets; None where it is not JSON."""
        try:
            return json.loads(self._around.redact(clean(json.dumps(structured, ensure_ascii=False))))
        except (ValueError, TypeError, RecursionError):
            return None


_NOTHING = ToolOutput("")
_CUT_OFF = Ending(Outcome.CANCELLED, "the trajectory was cancelled while the call ran")


def _end_failed(failure: ToolFailure) -> Ending:
    return Ending(failure.outcome, failure.text, retry_after_s=failure.retry_after_s or 0.0)


def refused_call(outcome: Outcome, text: str) -> ToolResult:
    """The result of a call that never reached a tool."""
    text = f"error: {shorten(clean(text[:MAX_FAULT_CHARS]))}"
    return ToolResult(outcome, text, size_bytes=size_bytes(text))


def backoff_s(num_attempts: int, seed: int) -> float:
    """Pause after the n-th failed attempt: uniform below FIRST_PAUSE_S * 2^(n-1), drawn from (seed, n)."""
    return random.Random(seed + num_attempts).uniform(0.0, FIRST_PAUSE_S * 2.0 ** (num_attempts - 1))


_CHANGEABLE = frozenset({dict, list})
