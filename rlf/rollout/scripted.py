"""`ScriptedPolicy` plays written turns through the real rollout loop: for the certificate, and for tests of your own.

    policy = ScriptedPolicy(tokenizer, [chat.write_call(call) + "<|im_end|>", "It is 42.<|im_end|>"])
    trajectory = await play(Rollout("t", task, 0, seed=0), Setting(policy, chat, tools, limits, sampling))

Its `requests` hold what the policy was shown before each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rlf.chat.encoding import decode, encode_template
from rlf.chat.format import ChatFormat
from rlf.core import RlfError
from rlf.rollout.loop import Setting, play
from rlf.rollout.rollout import ChatPolicy, Rollout, RolloutLimits
from rlf.types import Outcome, Sampling, Task, ToolCall, ToolDescription, ToolResult, Trajectory, Turn
from rlf.types.policy import Finish, Sample, SampleRequest
from rlf.types.world import WorldRecord, WorldStep

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Line = str | Callable[[SampleRequest], str]
"""One turn's text, special tokens as text; or a function of the request, which sees the whole context."""


@dataclass(slots=True)
class _Part:
    """The state of one trajectory's script."""

    num_turns: int = 0
    rest: list[int] = field(default_factory=list)
    """Tokens of the last turn that were not sampled yet, because a stop string or the budget came first."""
    context_size: int = -1
    """Tokens of the context after the last sample."""


class ScriptedPolicy:
    """Samples the same script in every trajectory, with the stops and budgets of a real sampler.

    A turn ends at its first stop token or stop string, which stay in the sample, or at `max_tokens`; a text that holds
    no stop is a turn cut by its length. A request that extends the last one by nothing but what was sampled goes on
    with the same turn.

    Args:
        tokenizer: turns the texts into tokens; markup in them becomes special tokens.
        script: the turns of every trajectory, or of each by its id.
        logprob: of every token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        script: Sequence[Line] | Mapping[str, Sequence[Line]],
        *,
        logprob: float = -1.0,
    ) -> None:
        self._tokenizer = tokenizer
        self._script = script
        self._logprob = logprob
        self._parts: dict[str, _Part] = {}
        self.requests: list[SampleRequest] = []
        """Every request, with the context as it was."""
        self.samples: list[Sample] = []
        """What was sampled at each request."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Begins the script again for each trajectory."""
        self._parts |= {id_: _Part() for id_ in trajectory_ids}

    async def sample(self, request: SampleRequest) -> Sample:
        """The next turn, or the rest of the last one."""
        part = self._parts.setdefault(request.trajectory_id, _Part())
        if not part.rest or len(request.tokens) != part.context_size:
            part.rest = encode_template(self._tokenizer, self._line(request, part.num_turns))
            part.num_turns += 1
        size, finish = end_sample(self._tokenizer, part.rest, request)
        tokens, part.rest = part.rest[:size], part.rest[size:]
        part.context_size = len(request.tokens) + size
        sample = Sample(tokens, [self._logprob] * size, finish)
        self.requests.append(replace(request, tokens=tuple(request.tokens)))
        self.samples.append(sample)
        return sample

    def release(self, trajectory_id: str) -> None:
        """Forgets where the trajectory was in the script."""
        self._parts.pop(trajectory_id, None)

    def _line(self, request: SampleRequest, turn: int) -> str:
        script = self._script
        lines = script[request.trajectory_id] if isinstance(script, Mapping) else script
        if turn >= len(lines):
            raise RlfError(
                f"the script of {request.trajectory_id!r} has {len(lines)} turns and turn {turn + 1} was asked for. "
                "Write that turn, or end the script with an answer."
            )
        line = lines[turn]
        return line if isinstance(line, str) else line(request)


def end_sample(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], request: SampleRequest) -> tuple[int, Finish]:
    """How many of the tokens one sample takes, and why no more."""
    sampling = request.sampling
    for size in range(1, min(len(tokens), request.max_tokens) + 1):
        if tokens[size - 1] in sampling.stop_token_ids:
            return size, Finish.STOP
        if sampling.stop_strings:
            text = decode(tokenizer, tokens[:size])
            if any(stop in text for stop in sampling.stop_strings):
                return size, Finish.STOP
    return min(len(tokens), request.max_tokens), Finish.LENGTH


# Written conversations played through the real rollout loop: turns as if sampled, results as if tools gave them.
#
# The mask certificate plays its conversations so, and steps that imitate their demonstrations: the tokens and masks
# that the certificate finds right are those that are trained on.


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
