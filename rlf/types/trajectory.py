"""The record of one rollout: tokens, which of them the policy sampled, and every turn.

`action_mask[t]` is true exactly where the policy sampled token t. The three sequences are aligned with `tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar

from rlf.core.plain_json import Jsonable, frozen
from rlf.types.task import Message, Task
from rlf.types.tool import ToolCall, ToolResult
from rlf.types.world import WorldRecord, WorldStep


class StopReason(StrEnum):
    """Why a trajectory ended."""

    ANSWERED = "answered"
    """The model gave a final answer."""
    ENV_DONE = "env_done"
    """The world ended the episode."""
    MAX_TURNS = "max_turns"
    """The last allowed turn still called a tool, or the world still spoke."""
    LENGTH = "length"
    """The per-turn or total token budget ran out."""
    PARSE_FAILURE_LIMIT = "parse_failure_limit"
    """More turns than allowed could not be parsed."""
    INVALID_CALLS = "invalid_calls"
    """`rollout.max_failed_turns` turns in a row had no valid call."""
    PARSE_FAILURE = "parse_failure"
    """A turn failed in a way that `chat.failures` lets end the trajectory."""
    INFRA_FAILURE = "infra_failure"
    """Something outside the policy broke: the trajectory is unscorable."""
    CANCELLED = "cancelled"
    """The run was stopped: the trajectory is unscorable."""


class FailureClass(StrEnum):
    """The fault of a turn's text. Each class is a metric."""

    UNTERMINATED = "unterminated"
    """A call block was opened and not closed."""
    STRAY_TAG = "stray_tag"
    """A closing tag without its opening one."""
    WRONG_TAG = "wrong_tag"
    """What looks like a call stands in no tag, a misspelt one, or one of another format."""
    BAD_JSON = "bad_json"
    """The block does not hold JSON."""
    BAD_CALL = "bad_call"
    """The JSON is no call object."""
    MISSING_NAME = "missing_name"
    """The call names no tool."""
    BAD_ARGUMENTS = "bad_arguments"
    """`arguments` is absent or no JSON object."""
    IN_THINKING = "in_thinking"
    """A call was rehearsed inside thinking; it is not run."""
    UNCLOSED_THINKING = "unclosed_thinking"
    """Thinking never ends, so nothing after it is known to be meant."""
    TRUNCATED = "truncated"
    """The token budget cut the turn."""
    TWO_ANSWERS = "two_answers"
    """The turn gives several final answers, or a final answer beside a call, where the format allows one."""
    EMPTY = "empty"
    """The turn holds neither a call nor an answer."""


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """One thing the parser could not take as it stands."""

    kind: FailureClass
    message: str
    """What was wrong and the right form, in words a model can act on."""
    raw: str
    """The text at fault."""
    position: int
    """Offset of `raw` in the turn's text, in characters."""
    structural: bool
    """True when the turn as a whole cannot be trusted; false when the rest of it still counts."""


class RepairKind(StrEnum):
    """The repaired part of a call whose meaning was clear. Each kind is a metric."""

    TRAILING_COMMA = "trailing_comma"
    """A comma before a closing brace or bracket."""
    SINGLE_QUOTES = "single_quotes"
    """Strings in single quotes."""
    CODE_FENCE = "code_fence"
    """A code fence around the JSON, or around a turn that is one call."""
    PARAMETERS = "parameters"
    """`parameters` for `arguments`."""
    STRING_ARGUMENTS = "string_arguments"
    """`arguments` as a string that holds a JSON object."""
    OPENING_TAG = "opening_tag"
    """A call without the tag that opens it."""
    CLOSING_TAG = "closing_tag"
    """A call or a parameter without the tag that closes it."""
    RAW_NEWLINE = "raw_newline"
    """A line break or another control character inside a string, not escaped."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair of one call."""

    kind: RepairKind
    position: int
    """Offset of `raw` in the turn's text, in characters."""
    raw: str
    """The call as the policy sampled it."""


@frozen
class CallRecord:
    """A call and its result."""

    call: ToolCall
    result: ToolResult


@frozen
class Turn:
    """One generation and the observation it led to. Offsets index the trajectory's tokens."""

    start: int
    """First sampled token."""
    end: int
    """One past the last sampled token; the observation, if any, starts here."""
    observation_end: int
    """One past the last observation token; equals `end` when the trajectory stopped here."""
    text: str
    """The sampled tokens, decoded with special tokens."""
    calls: tuple[CallRecord, ...] = ()
    failures: tuple[ParseFailure, ...] = ()
    sample_s: float = 0.0
    """From asking for the turn to its last token."""
    tools_s: float = 0.0
    """From the first call's start to the last call's end."""
    repairs: tuple[Repair, ...] = ()
    """Repairs of calls that were run, in the order of the text; a call with two has two."""
    num_penalised: int = 0
    """Failures that the reward rule `unpenalised` counts."""
    world: WorldStep | None = None
    """What it did to the world; None where there is none, or the trajectory broke before."""
    link: str = ""
    """Why an agent's call began a new context: `first`, or what kept it from continuing an earlier call. Empty where it
    continues one, and where rlf's own loop plays."""
    asked: tuple[Message, ...] = ()
    """What an agent sent before it: all of a new context, else what follows the call that it continues, without results
    that stand with that call. Empty where rlf's own loop plays, and of a first turn that was asked the task itself."""
    versions: tuple[tuple[int, int], ...] = ()
    """The updates that the policy had seen: pairs of the first token and the number that holds from it on. Empty where
    rollouts and updates take turns, so that a step's number says it."""

    @property
    def is_failed(self) -> bool:
        """Whether it wrote calls and none of them was valid."""
        # What a world replied to is an answer, whatever stands beside it.
        called = bool(self.failures or self.calls) and (self.world is None or self.world.reply is None)
        return called and all(record.result.outcome.is_invalid_call for record in self.calls)


SAMPLER, AGENT = "the sampler", "the agent"


@frozen
class MissingRewardCause:
    """What took a trajectory's reward."""

    name: str
    """`tool 'search'`, `reward term 'good'`, `world 'shop'`, the sampler or the agent."""
    error: str
    may_pass: bool = True
    """Whether playing it again may give it one; False where the row, or what the trajectory continues, is why."""
    is_gone: bool = False
    """Whether to wait for it is in vain."""


@frozen
class Trajectory(Jsonable):
    """One rollout of one task."""

    JSON_PROPERTIES: ClassVar = ("error",)
    id: str
    task: Task
    sample_index: int
    """Position within the group of rollouts of the task."""
    tokens: Sequence[int]
    action_mask: Sequence[bool]
    rollout_logprobs: Sequence[float]
    """Natural log of the sampler's probability where action_mask is true, 0.0 elsewhere."""
    turns: tuple[Turn, ...]
    stop: StopReason
    answer: str | None
    """The final answer's text; None when the model gave none."""
    broken: MissingRewardCause | None = None
    """What broke, when `stop` is infra_failure."""
    duration_s: float = 0.0
    forks: tuple[int, ...] = ()
    """Where new contexts of the policy began (`history: fork`, `rollout.context`); each is a sequence by itself."""
    images: tuple[str, ...] = ()
    """The images that `tokens` hold places of, in order: those of the prompt, then those of tools' results."""
    num_prefix_turns: int = 0
    """Turns that it began with: they were played in another trajectory, which paid for them."""
    prefix_of: str = ""
    """The id of that trajectory; empty without one."""
    world: WorldRecord | None = None
    """What is kept of its world; None where there is none."""

    @property
    def error(self) -> str | None:
        """What broke, in words; None when nothing did."""
        return None if self.broken is None else self.broken.error

    @property
    def messages(self) -> tuple[Message, ...]:
        """What its first turn was asked: the task's messages, or those that an agent sent in their place."""
        return (self.turns[0].asked if self.turns else ()) or self.task.messages

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """Start and end of each sequence of tokens that the policy saw as one, in order."""
        bounds = (0, *self.forks, len(self.tokens))
        return list(pairwise(bounds))

    @property
    def action_ranges(self) -> list[tuple[int, int]]:
        """Start and end of what was sampled in each turn, without the turns of a prefix that is masked."""
        bounds = [(turn.start, turn.end) for turn in self.turns]
        return [(start, end) for start, end in bounds if all(self.action_mask[start:end])]

    @property
    def scorable(self) -> bool:
        """Whether the trajectory says something about the policy."""
        return self.stop not in (StopReason.INFRA_FAILURE, StopReason.CANCELLED)

    @property
    def calls(self) -> list[CallRecord]:
        """Every call of every turn, in order."""
        return [record for turn in self.turns for record in turn.calls]

    @property
    def played_calls(self) -> list[CallRecord]:
        """The calls of the turns after the prefix."""
        return [record for turn in self.turns[self.num_prefix_turns :] for record in turn.calls]

    @property
    def failures(self) -> list[ParseFailure]:
        """Every parse failure of every turn, in order."""
        return [failure for turn in self.turns for failure in turn.failures]

    @property
    def repairs(self) -> list[Repair]:
        """Every repair of every turn, in order."""
        return [repair for turn in self.turns for repair in turn.repairs]

    @property
    def num_penalised(self) -> int:
        """Number of failures that `chat.failures` has penalised."""
        return sum(turn.num_penalised for turn in self.turns)

    @property
    def versions(self) -> list[int]:
        """The updates that the policy had seen at each sampled token of the turns that record them."""
        found: list[int] = []
        for turn in self.turns:
            ends = [*(start for start, _ in turn.versions[1:]), turn.end]
            for (start, version), end in zip(turn.versions, ends, strict=True) if turn.versions else ():
                found += [version] * (end - start)
        return found

    @property
    def num_sampled(self) -> int:
        """Number of action tokens."""
        return self.action_mask.count(True)
