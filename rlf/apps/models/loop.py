"""An open agent tool: a loop of requests and calls that ends by its limits.

Its tools are a finite tree of declarations, so no agent can come to call itself. Its deadline ends before that of the
call, and its tools' calls end with it. What breaks below it breaks the call: an agent's answer that rests on a tool
nobody could reach says nothing about the policy that asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from rlf.apps.models.prompts import DeclaredPrompt, shown_answer
from rlf.core.clocks import Deadline, clock, within
from rlf.core.meter import Meter
from rlf.endpoints.openai import Completion, NoAnswer, RequestedCall
from rlf.endpoints.pool import Caller, EndpointPool
from rlf.endpoints.spec import EndpointFailure, SamplingSpec
from rlf.tools.agent_text import TextCalls, read_call, show_results
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.tools.kind import CallContext, CallOrigin, ToolRuntime
from rlf.tools.results import ToolFailure, inner_deadline_s, tool_failure
from rlf.types import InnerCall, InnerTurn, Outcome, ParseFailure, ToolOutput, ToolResult

_ALPHABET: Final = string.digits + string.ascii_lowercase


class AgentRuntime(ToolRuntime):
    """Plays one loop per call."""

    isolation = "remote"
    names_calls = True

    def __init__(
        self,
        pool: EndpointPool,
        prompt: DeclaredPrompt,
        tools: Sequence[ToolDeclaration],
        *,
        text_calls: str,
        sampling: SamplingSpec,
        max_turns: int,
        max_calls: int,
    ) -> None:
        """Takes whom to ask and what, the model's tools, and the limits of one loop."""
        self.prompt = prompt
        self.pool, self.sampling, self.max_turns, self.max_calls = pool, sampling, max_turns, max_calls
        self.executor = Executor(tools)
        self.text_calls = TextCalls(text_calls, self.executor.descriptions)
        self.descriptions = [description.as_openai() for description in self.executor.descriptions]
        """The tools as the model sees them."""

    async def open(self) -> None:
        """Opens the model's tools. Raises RlfError where one of them cannot be, and closes the pool then."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.pool.close)
            await stack.enter_async_context(self.executor)
            self.held.push_async_exit(stack.pop_all())

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one loop."""
        limit_s = inner_deadline_s(context)
        try:
            with within(limit_s) as limit:
                return ToolOutput(await _Run(self, context, limit).play(self.prompt.messages(arguments)))
        except TimeoutError as fault:
            raise ToolFailure(Outcome.TIMEOUT, f"the agent gave no answer within {limit_s:.3g} s") from fault
        except EndpointFailure as failure:
            raise tool_failure(failure) from failure

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Gives back what its tools hold for a trajectory."""
        await self.executor.end_trajectory(trajectory_id)


class _Run:
    """One loop: its calls, and how much of its time and its limits is left."""

    def __init__(self, agent: AgentRuntime, context: CallContext, limit: Deadline) -> None:
        self._agent = agent
        self._context = context
        self._limit = limit
        self._num_turns = 0
        self._num_calls = 0

    async def play(self, messages: list[dict[str, Any]]) -> str:
        """The model's answer. Each turn is recorded, also where the loop then fails or is cut off."""
        max_turns = self._agent.max_turns
        for turn in range(1, max_turns + 1):
            reply = await self._ask_model(messages, is_last=turn == max_turns)
            done = list[InnerCall]()
            try:
                if not reply.calls and not reply.failures:
                    return shown_answer(reply.completion)
                results = await self._answer_calls(reply, done)
                messages += show_results(reply.completion, results, reply.failures, self._agent.prompt.tokens)
            finally:
                self._record_turn(reply, done)
        raise ToolFailure(Outcome.TOOL_ERROR, f"the agent had no answer after {max_turns} turns")

    async def _ask_model(self, messages: Sequence[Mapping[str, Any]], *, is_last: bool) -> _Reply:
        """The model's next turn."""
        context, meter = self._context, Meter(self._context.meter)
        self._num_turns += 1
        meter.add({"turns": 1})
        left_s = self._limit.at - clock.now()
        completion = await self._agent.pool.chat(
            messages,
            Caller(left_s, meter, self._pause_limit),
            sampling=self._agent.sampling,
            tools=self._agent.descriptions,
            tool_choice="none" if is_last else None,
        )
        if completion.is_truncated:
            meter.add({NoAnswer.TRUNCATED.value: 1})
        completion, failures = await self._agent.text_calls.read_turn(completion, self._pause_limit)
        if failures:
            context.meter.add({"unreadable_calls": len(failures)})
        # Names of their own: some servers give none, and others the same ones in every turn.
        first = (self._num_turns, context.call_id)
        named = tuple(replace(call, id=_short_id(*first, place)) for place, call in enumerate(completion.calls))
        return _Reply(replace(completion, calls=named), failures, meter.usage)

    @contextmanager
    def _pause_limit(self) -> Iterator[None]:
        """A block whose time is not the agent's: its own limit and its call's stand still."""
        with self._limit.waiting(), self._context.deadline.waiting():
            yield

    async def _answer_calls(self, reply: _Reply, done: list[InnerCall]) -> list[ToolResult]:
        """One result per call. Those within the limit run side by side; one that broke breaks the whole."""
        max_calls = self._agent.max_calls
        room = max_calls - self._num_calls
        calls = reply.calls[:room]
        self._num_calls += len(calls)
        self._context.meter.add({"tool_calls": len(calls)})
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_call(call, done)) for call in calls]
        results = [task.result() for task in tasks]
        for call, result in zip(calls, results, strict=True):
            if result.outcome.is_infrastructure:
                raise ToolFailure(result.outcome, f"the agent's tool {call.name}: {result.text}")
        text = f"error: no more than {max_calls} calls are allowed; answer with what you have"
        return results + [ToolResult(Outcome.LIMIT_REACHED, text)] * len(reply.calls[room:])

    async def _run_call(self, call: RequestedCall, done: list[InnerCall]) -> ToolResult:
        """The result of a call, which is put among those that are over, also where it is cut off."""
        made, result = read_call(call)
        if result is None:
            context = self._context
            origin = CallOrigin(context.trajectory_id, context.depth + 1, call.id, context.meter)
            try:
                result = await self._agent.executor.invoke_from(made, origin)
            except asyncio.CancelledError as cut_off:
                if (so_far := ToolResult.carried_by(cut_off)) is not None:
                    done.append(InnerCall(call.id, made, so_far))
                raise
        done.append(InnerCall(call.id, made, result))
        return result

    def _record_turn(self, reply: _Reply, done: Sequence[InnerCall]) -> None:
        place = {call.id: at for at, call in enumerate(reply.calls)}
        turn = InnerTurn(
            reply.completion.text,
            reply.completion.reasoning,
            reply.completion.finish_reason,
            reply.usage,
            tuple(sorted(done, key=lambda call: place[call.id])),
            tuple(str(failure.kind) for failure in reply.failures),
        )
        if self._context.inner is not None:
            self._context.inner.append(turn)


@dataclass(frozen=True, slots=True)
class _Reply:
    """One turn of the model, its calls under names of their own."""

    completion: Completion
    failures: Sequence[ParseFailure]
    usage: Mapping[str, float]

    @property
    def calls(self) -> Sequence[RequestedCall]:
        """Those that it makes, in whatever form it writes them."""
        return self.completion.calls


def _short_id(turn: int, call_id: str, place: int) -> str:
    """Nine letters and digits, all that some templates take: unique by the agent's call, the turn and the place."""
    number = int(hashlib.sha256(f"{call_id}/{turn}/{place}".encode()).hexdigest(), 16)
    letters = ""
    for _ in range(9):
        number, letter = divmod(number, 36)
        letters += _ALPHABET[letter]
    return letters
