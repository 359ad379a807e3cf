"""An open agent tool: a loop of requests and calls that ends by its limits.

Its tools are a finite tree of declarations, so no agent can come to call itself. Its deadline ends before that of the
call, and its tools' calls end with it. What breaks below it breaks the call: an agent's answer that rests on a tool
nobody could reach says nothing about the policy that asked.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from rlf.endpoints import Completion, EndpointFailure, RequestedCall
from rlf.endpoints.pool import EndpointPool
from rlf.tools.execution.executor import Executor
from rlf.tools.failure import ToolFailure
from rlf.tools.kind import CallContext
from rlf.tools.remote import Prompt, inner_deadline_s, tool_failure
from rlf.types import Outcome, ToolCall, ToolOutput, ToolResult

if TYPE_CHECKING:
    from rlf.tools.kinds.agent import AgentTool


@dataclass(frozen=True, slots=True)
class _Parts:
    """What every run of an agent shares."""

    tool: AgentTool
    pool: EndpointPool
    executor: Executor

    @property
    def tools(self) -> list[dict[str, Any]]:
        """What the model is told of its tools."""
        return [description.as_openai() for description in self.executor.descriptions]


class AgentRuntime:
    """Plays one loop per call."""

    isolation = "remote"
    num_abandoned = 0

    def __init__(self, parts: _Parts, prompt: Prompt, stack: AsyncExitStack) -> None:
        self._parts = parts
        self._prompt = prompt
        self._stack = stack

    @classmethod
    async def opened(cls, tool: AgentTool, prompt: Prompt, pool: EndpointPool) -> Self:
        """Opens the model's tools. Raises RlfError where one of them cannot be, and closes the pool then."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(pool.close)
            executor = await stack.enter_async_context(Executor(tool.tools))
            return cls(_Parts(tool, pool, executor), prompt, stack.pop_all())

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one loop."""
        limit_s = inner_deadline_s(context)
        run = _Run(self._parts, context, monotonic() + limit_s)
        try:
            async with asyncio.timeout(limit_s):
                return await run.play(self._prompt.messages(arguments))
        except TimeoutError as fault:
            raise ToolFailure(Outcome.TIMEOUT, f"the agent gave no answer within {limit_s:.3g} s") from fault
        except EndpointFailure as failure:
            raise tool_failure(failure) from failure

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Gives back what its tools hold for a trajectory."""
        await self._parts.executor.end_trajectory(trajectory_id)

    async def close(self) -> None:
        """Closes its tools and its connections."""
        await self._stack.aclose()


class _Run:
    """One loop: its calls, and what they used up."""

    def __init__(self, parts: _Parts, context: CallContext, deadline: float) -> None:
        self._parts = parts
        self._context = context
        self._deadline = deadline
        self._num_calls = 0
        self._usage: Counter[str] = Counter()

    async def play(self, messages: list[dict[str, Any]]) -> ToolOutput:
        """The model's answer."""
        max_turns = self._parts.tool.max_turns
        for turn in range(1, max_turns + 1):
            completion = await self._ask(messages, is_last=turn == max_turns)
            if not completion.calls:
                self._usage.update({"turns": turn, "tool_calls": self._num_calls})
                return ToolOutput(completion.text, usage=dict(self._usage))
            messages += [completion.message(), *await self._answers(completion.calls)]
        raise ToolFailure(Outcome.TOOL_ERROR, f"the agent had no answer after {max_turns} turns")

    async def _ask(self, messages: Sequence[Mapping[str, Any]], *, is_last: bool) -> Completion:
        completion = await self._parts.pool.chat(
            messages,
            deadline_s=self._deadline - monotonic(),
            sampling=self._parts.tool.sampling,
            tools=self._parts.tools,
            tool_choice="none" if is_last else None,
        )
        self._usage.update(completion.usage.by_unit())
        return completion

    async def _answers(self, calls: Sequence[RequestedCall]) -> list[dict[str, Any]]:
        """One message per call. Those within the limit run side by side; one that broke breaks the whole."""
        max_calls = self._parts.tool.max_calls
        room = max_calls - self._num_calls
        self._num_calls += len(calls[:room])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._result(call)) for call in calls[:room]]
        results = [task.result() for task in tasks]
        for call, result in zip(calls, results, strict=False):
            if result.outcome.is_infrastructure:
                raise ToolFailure(result.outcome, f"the agent's tool {call.name}: {result.text}")
        refusal = f"error: no more than {max_calls} calls are allowed; answer with what you have"
        texts = [result.text for result in results] + [refusal] * len(calls[room:])
        return [
            {"role": "tool", "tool_call_id": call.id, "content": text} for call, text in zip(calls, texts, strict=True)
        ]

    async def _result(self, call: RequestedCall) -> ToolResult:
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return ToolResult(Outcome.INVALID_ARGUMENTS, f"error: the arguments of {call.name} are no JSON object")
        result = await self._parts.executor.invoke(
            ToolCall(call.name, arguments), trajectory_id=self._context.trajectory_id, depth=self._context.depth + 1
        )
        self._usage.update(result.usage)
        return result
