"""The whole tool loop behind one answer: the model plays as in training, with the tools and limits of its spec."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlf.apps.serve.dialogue import checked_message
from rlf.apps.serve.requests import ChatRequest, Refusal
from rlf.endpoints.openai import RequestedCall
from rlf.rollout.rollout import Rollout
from rlf.training.harness import Harness
from rlf.types import (
    CallRecord,
    Message,
    StopReason,
    Task,
    ToolCall,
    ToolDescription,
    ToolInvoker,
    ToolResult,
    Trajectory,
)
from rlf.types.policy import Host, Sampling

Json = dict[str, Any]
Report = Callable[[Json], None]
_LENGTHS = (StopReason.LENGTH, StopReason.MAX_TURNS)
_OWN = ("tools", "tool_choice", "parallel_tool_calls", "logprobs", "stop", "stop_token_ids", "ignore_eos")
"""Keys that the loop has no place for: tools are the spec's, and a turn ends as in training."""


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """An answer with the way to it."""

    text: str
    finish: str
    tokens: Sequence[int]
    """All after the prompt: turns, and results between them."""
    logprobs: Sequence[float]
    num_sampled: int
    report: Json | None = None
    """`stop`, `turns`, `calls`, and `action_mask` of the tokens: which of them were sampled. None of one turn."""
    reasoning: str = ""
    calls: tuple[RequestedCall, ...] = ()
    """Those that are left to the client."""


class ServedAgent:
    """Plays conversations with the tools of a spec, which are open already."""

    def __init__(self, harness: Harness, system: str | None = None) -> None:
        """Takes what a run's trajectories are played with.

        Args:
            system: put before conversations that have no system message.
        """
        self._harness = harness
        self._system = system
        self._number = itertools.count()

    def task(self, asked: ChatRequest) -> Task:
        """The task of a request. Raises Refusal for a conversation that a task cannot hold."""
        for key in _OWN:
            if getattr(asked, key) != ChatRequest.model_fields[key].default:
                raise Refusal(400, f"{key}: this server runs the tools of its own spec. Leave the key out.", key=key)
        checked = [checked_message(message, at) for at, message in enumerate(asked.messages)]
        named = next((at for at, message in enumerate(checked) if "name" in message), None)
        if named is not None:
            raise Refusal(400, f"messages.{named}.name: the prompt does not show it. Leave it out.", key="messages")
        if any(message["role"] == "tool" or message.get("tool_calls") for message in checked):
            raise Refusal(400, "messages: this server calls its tools itself; send only the messages", key="messages")
        messages = [Message(message["role"], message["content"]) for message in checked]
        if self._system is not None and messages[0].role != "system":
            messages.insert(0, Message("system", self._system))
        return Task(f"served/{next(self._number)}", tuple(messages))

    def prompt(self, task: Task) -> list[int]:
        """The tokens that a conversation begins with."""
        return self._harness.chat.prompt(task.messages, self._harness.tools.descriptions)

    async def play(
        self, host: Host, task: Task, asked: ChatRequest, max_tokens: int, index: int, seed: int, report: Report
    ) -> AgentAnswer:
        """Plays to the answer.

        Args:
            max_tokens: of a turn.
            report: takes each call when it is over.

        Raises:
            Refusal: a tool's infrastructure failed.
        """
        tools = _Reporting(self._harness.tools, report)
        limits = self._harness.limits
        limits = replace(limits, max_new_tokens=min(max_tokens, limits.max_new_tokens or max_tokens))
        player = self._harness.player(host, self._make_sampling(asked), tools=tools, limits=limits)
        rollout = Rollout(f"{task.id}/{index}", task, index, seed)
        player.open([rollout.id])
        trajectory = await player.play(rollout)
        if trajectory.stop is StopReason.INFRA_FAILURE:
            raise Refusal(502, f"a tool or the spec's agent failed: {trajectory.error}", code="tool_failed")
        return _make_played(trajectory)

    def _make_sampling(self, asked: ChatRequest) -> Sampling:
        """As in the spec's evaluations, but for what the request says."""
        own = {"temperature", "top_p", "top_k", "min_p"} & asked.model_fields_set
        changes = {key: max(0, value) for key, value in asked.model_dump(include=own).items()}
        return replace(self._harness.evaluation, **changes)


class _Reporting:
    """The tools, with a word about each call."""

    def __init__(self, tools: ToolInvoker, report: Report) -> None:
        self._tools = tools
        self._report = report

    @property
    def descriptions(self) -> tuple[ToolDescription, ...]:
        """Every declared tool."""
        return self._tools.descriptions

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        """Runs one call."""
        result = await self._tools.invoke(call, trajectory_id=trajectory_id)
        self._report({"calls": [_show_call(CallRecord(call, result))]})
        return result

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Gives back what tools hold for a trajectory."""
        await self._tools.end_trajectory(trajectory_id)


def _show_call(record: CallRecord) -> Json:
    result = record.result
    return {
        "name": record.call.name,
        "arguments": dict(record.call.arguments),
        "outcome": result.outcome.value,
        "result": result.text,
    }


def _make_played(trajectory: Trajectory) -> AgentAnswer:
    start = trajectory.turns[0].start if trajectory.turns else len(trajectory.tokens)
    mask = list(map(bool, trajectory.action_mask[start:]))
    calls = [{"turn": at, **_show_call(r)} for at, turn in enumerate(trajectory.turns, 1) for r in turn.calls]
    report = {"stop": trajectory.stop.value, "turns": len(trajectory.turns), "calls": calls, "action_mask": mask}
    finish = "length" if trajectory.stop in _LENGTHS else "stop"
    logprobs = trajectory.rollout_logprobs[start:]
    return AgentAnswer(trajectory.answer or "", finish, trajectory.tokens[start:], logprobs, sum(mask), report)
