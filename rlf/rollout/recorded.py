"""Written conversations played through the real rollout loop: turns as if sampled, results as if tools gave them.

The mask certificate plays its conversations so, and steps that imitate their demonstrations: the tokens and masks that
the certificate finds right are those that are trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlf.chat.format import ChatFormat
from rlf.rollout.loop import Setting, play
from rlf.rollout.rollout import ChatPolicy, Rollout, RolloutLimits
from rlf.rollout.scripted import Line, ScriptedPolicy
from rlf.types import Outcome, Sampling, Task, ToolCall, ToolDescription, ToolResult, Trajectory, Turn
from rlf.types.policy import SampleRequest
from rlf.types.world import WorldRecord, WorldStep


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """One scripted turn and what it must be read as."""

    text: str
    """Its calls or its answer, without the stop token."""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    reply: str | None = None
    """What the world says to it."""


@dataclass(slots=True)
class _Speaker:
    """A world that says what is written, turn by turn. An `Episode`, and the `Worlds` of one conversation."""

    replies: list[str]
    speaks: bool = True
    record: WorldRecord = field(default_factory=lambda: WorldRecord("written"))
    text: str | None = None

    def open(self, trajectory_id: str, task: Task) -> _Speaker:
        return self

    def tools_of(self, columns: Mapping[str, Any]) -> None:
        """Rows describe no tools."""

    def foreign_tools(self, columns: Mapping[str, Any]) -> tuple[()]:
        """There is one world."""
        return ()

    def owns(self, tool: str) -> bool:
        return False

    async def reset(self) -> None:
        """Says nothing first."""

    async def reply(self, text: str) -> None:
        self.text = self.replies.pop(0) if self.replies else None

    def take_step(self) -> WorldStep:
        text, self.text = self.text, None
        return WorldStep(reply=text)

    async def score(self, turns: Sequence[Turn] = ()) -> None:
        """Has no scores."""

    async def close(self) -> None:
        """Holds nothing."""


@dataclass(slots=True)
class _Tools:
    """Answers the calls of one conversation with written results, in order."""

    descriptions: tuple[ToolDescription, ...]
    results: Sequence[str]
    num_answered: int = 0

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        self.num_answered += 1
        return ToolResult(Outcome.OK, self.results[(self.num_answered - 1) % len(self.results)])

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Holds nothing."""


def write_turn(chat: ChatFormat, turn: WrittenTurn) -> str:
    """The text of a turn, with the marks of thinking that its place asks for."""
    opening, closing = chat.thinking_marks
    if turn.thinking:
        return f"{'' if chat.begins_thinking else opening}{turn.thinking}{closing}{turn.text}"
    return f"{closing if chat.begins_thinking else ''}{turn.text}"


def _line(chat: ChatFormat, turn: WrittenTurn, *, is_open: bool) -> Line:
    def speak(request: SampleRequest) -> str:
        text = write_turn(chat.after(request.tokens), turn)
        stops = [chat.decode([token]) for token in chat.stop_token_ids]
        is_whole = is_open or not stops or text.endswith((*stops, *chat.stop_strings))
        return text if is_whole else text + stops[0]

    return speak


async def play_written(
    chat: ChatFormat,
    tools: tuple[ToolDescription, ...],
    task: Task,
    script: Sequence[WrittenTurn],
    results: Sequence[str],
    *,
    max_total_tokens: int = 1 << 24,
    handling: ChatPolicy | None = None,
) -> tuple[Trajectory, ScriptedPolicy]:
    """Plays a conversation to its end; the trajectory, and the policy with what it was asked and gave.

    Args:
        results: of the calls, in order; fewer are given again from the first on.
    """
    handling = handling or ChatPolicy()
    lines = [_line(chat, turn, is_open=handling.stop_after_call and bool(turn.calls)) for turn in script]
    policy = ScriptedPolicy(chat.tokenizer, lines, logprob=0.0)
    ends = chat.call_ends if handling.stop_after_call else ()
    sampling = Sampling(stop_token_ids=chat.stop_token_ids, stop_strings=(*chat.stop_strings, *ends))
    limits = RolloutLimits(max_turns=len(script) + 1, max_total_tokens=max_total_tokens, max_parse_failures=len(script))
    replies = [turn.reply for turn in script if turn.reply is not None]
    worlds = _Speaker(replies) if replies else None
    setting = Setting(policy, chat, _Tools(tools, results), limits, sampling, handling, worlds)
    return await play(Rollout(task.id, task, 0, seed=0), setting), policy
