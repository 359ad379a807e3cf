"""Models that answer in a conversation: one of this machine, token by token, or one behind a server, turn by turn.

Both let the rollout loop's rules play what follows a user's message, so that calls, results and limits are as in
training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlf.chat.format import ChatFormat
from rlf.core.errors import RlfError
from rlf.rollout.by_text import TextPlay, TextPlayer
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Prefix, Rollout, RolloutLimits
from rlf.types import CallRecord, Message, Task, ToolCall, ToolDescription, ToolInvoker, ToolResult, Trajectory
from rlf.types.policy import Finish, Host, Sample, SampleRequest


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More of what the model says, without the calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool is called."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is over."""

    record: CallRecord


@dataclass(frozen=True, slots=True)
class Correction:
    """The model wrote something that cannot run as a call, and gets a correction."""

    written: str
    correction: str


Shown = TextPiece | CallStart | CallEnd | Correction
Show = Callable[[Shown], None]


@dataclass(frozen=True, slots=True)
class ConversationState:
    """A conversation up to the end of the model's words."""

    trajectory: Trajectory
    messages: Sequence[Mapping[str, Any]] = ()
    """In the OpenAI form, of a model behind a server."""


class Speaker(Protocol):
    """A model that answers."""

    async def answer(
        self, before: ConversationState | None, task: Task, seed: int, *, again: bool
    ) -> ConversationState:
        """Lets the model answer.

        Args:
            before: the conversation before the task's messages; None: they begin it.
            again: whether the calls of `before` are made again first, since state that tools keep is gone.
        """


@dataclass(slots=True)
class ShownTools:
    """Tools whose calls are shown as they are made; the state that they keep lasts from answer to answer."""

    tools: ToolInvoker
    show: Show
    _number: int = 0
    """Of the state."""

    @property
    def descriptions(self) -> tuple[ToolDescription, ...]:
        """Every declared tool."""
        return self.tools.descriptions

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        """Runs and shows one call."""
        self.show(CallStart(call))
        result = await self.tools.invoke(call, trajectory_id=self._trajectory_id)
        self.show(CallEnd(CallRecord(call, result)))
        return result

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Keeps what tools hold: the conversation continues."""

    async def end(self) -> None:
        """Releases what tools hold for the conversation; later calls start with a new state."""
        await self.tools.end_trajectory(self._trajectory_id)
        self._number += 1

    @property
    def _trajectory_id(self) -> str:
        return f"chat/{self._number}"


@dataclass(frozen=True, slots=True)
class ShownHost:
    """A host whose tokens are shown as they are sampled."""

    host: Host
    chat: ChatFormat
    show: Show

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories."""
        self.host.open(trajectory_ids)

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory."""
        self.host.release(trajectory_id)

    async def sample(self, request: SampleRequest) -> Sample:
        """Samples one turn, showing the text up to its first call."""
        turn = ShownTurn(self.show, self.chat.find_call)
        sample = await self.host.sample(request, lambda sample: turn.grow(self._turn_text(sample)))
        turn.grow(self._turn_text(sample), is_over=True)
        chat, is_cut = self.chat.after(request.tokens), sample.finish is Finish.LENGTH
        parsed = chat.parse(self.chat.decode(sample.tokens), truncated=is_cut)
        for failure in parsed.failures if parsed.answer is None else ():
            turn.correct(failure.raw, failure.message)
        return sample

    def _turn_text(self, sample: Sample) -> str:
        """A turn's text, without the token that ends it."""
        text = self.chat.decode(sample.tokens)
        for ending in (self.chat.decode([token]) for token in self.chat.stop_token_ids):
            text = text.removesuffix(ending)
        return text


@dataclass(slots=True)
class ShownTurn:
    """Turns that are shown as they come, each up to its first call: a `TurnWatch`."""

    show: Show
    find_call: Callable[[str], int | None]
    _num_shown: int = 0

    def begin(self) -> None:
        """Shows the next turn from its beginning on."""
        self._num_shown = 0

    def grow(self, text: str, *, is_over: bool = False) -> None:
        """Shows what is new of a turn."""
        text = visible_part(text, self.find_call(text), is_over=is_over)
        if len(text) > self._num_shown:
            self.show(TextPiece(text[self._num_shown :]))
            self._num_shown = len(text)

    def correct(self, written: str, correction: str) -> None:
        """Shows a text that cannot run as a call."""
        self.show(Correction(written, correction))


_HELD = 16
"""Characters that may be the beginning of a call's mark."""


def visible_part(text: str, call: int | None, *, is_over: bool) -> str:
    """The part of a turn's text that is shown: up to its first call, and without half a character."""
    if call is not None:
        return text[:call].rstrip()
    if is_over:
        return text
    text = text.rstrip("\ufffd")
    at = max(text.rfind(mark, max(0, len(text) - _HELD)) for mark in "<[{")
    return text if at < 0 else text[:at]


@dataclass(frozen=True, slots=True)
class TokenSpeaker:
    """A model of this machine: the conversation is one trajectory, whose tokens are those that were sampled."""

    setting: Setting
    """Its limits are of one answer, but for the tokens, which are of the whole conversation."""

    async def answer(
        self, before: ConversationState | None, task: Task, seed: int, *, again: bool
    ) -> ConversationState:
        """Lets the model answer."""
        if any(message.images for message in task.messages):
            raise RlfError(
                "this model takes text only. Show images to a vision-language model (VLM) with --endpoint and --model."
            )
        if before is None:
            return await self._play_rollout(Rollout(f"chat/{seed}", task, 0, seed), self.setting.limits)
        earlier = self._add_user_message(before.trajectory, task.messages[-1].content)
        prefix = Prefix(earlier, len(earlier.turns), replays_calls=again)
        rollout = Rollout(f"chat/{seed}", earlier.task, 0, seed, prefix)
        return await self._play_rollout(rollout, self._answer_limits(earlier))

    async def _play_rollout(self, rollout: Rollout, limits: RolloutLimits) -> ConversationState:
        setting = replace(self.setting, limits=limits)
        setting.open([rollout.id])
        return ConversationState(await setting.play(rollout))

    def _add_user_message(self, trajectory: Trajectory, text: str) -> Trajectory:
        """A trajectory after whose last turn the user speaks."""
        if not trajectory.turns:
            raise RlfError("there is no room for an answer. /undo removes your last message.")
        last = trajectory.turns[-1]
        sampled = list(trajectory.tokens[: last.end])
        closed = bool(sampled) and sampled[-1] in self.setting.chat.stop_token_ids
        heard = self.setting.chat.user_turn(text, closed=closed, turn=last.text)
        size = len(sampled) + len(heard)
        if size >= self.setting.limits.max_total_tokens:
            most = self.setting.limits.max_total_tokens
            raise RlfError(
                f"the conversation is full: {size} of {most} tokens. /undo removes your last message, /system starts "
                "over."
            )
        return replace(
            trajectory,
            tokens=[*sampled, *heard],
            action_mask=[*trajectory.action_mask[: last.end], *([False] * len(heard))],
            rollout_logprobs=[*trajectory.rollout_logprobs[: last.end], *([0.0] * len(heard))],
            turns=(*trajectory.turns[:-1], replace(last, observation_end=size)),
            answer=None,
        )

    def _answer_limits(self, earlier: Trajectory) -> RolloutLimits:
        """Those of one answer, counted from the end of the conversation before."""
        limits, turns = self.setting.limits, earlier.turns
        num_failed = sum(bool(turn.failures and not turn.calls) for turn in turns)
        calls = None if limits.max_tool_calls is None else limits.max_tool_calls + len(earlier.calls)
        return replace(
            limits,
            max_turns=limits.max_turns + len(turns),
            max_tool_calls=calls,
            max_parse_failures=limits.max_parse_failures + num_failed,
        )


@dataclass(frozen=True, slots=True)
class TextSpeaker:
    """A model behind a server: gets the messages so far."""

    player: TextPlayer

    async def answer(
        self, before: ConversationState | None, task: Task, seed: int, *, again: bool
    ) -> ConversationState:
        """Lets the model answer."""
        earlier = () if before is None else before.messages
        turns = () if before is None else before.trajectory.turns
        playing = TextPlay(self.player, Rollout(f"chat/{seed}", task, 0, seed), earlier, turns)
        trajectory = playing.trajectory(await playing.run())
        first = task if before is None else before.trajectory.task
        return ConversationState(replace(trajectory, task=first), playing.messages)


def message_with(text: str, images: Sequence[str]) -> Message:
    """A user's message, its images before the words."""
    return Message("user", "<image>\n" * len(images) + text, tuple(images))
