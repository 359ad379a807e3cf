"""The beginning of a trajectory: its task or the prefix of another one, its limits, and how turns are taken."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlf.chat.format import ChatFormat
from rlf.chat.marks import ParsedTurn
from rlf.chat.settings import ContextLimit, FailurePolicy, RepairPolicy
from rlf.core.plain_json import frozen
from rlf.types.task import Message, Task
from rlf.types.tool import Outcome, ToolCall, ToolDescription, ToolInvoker, ToolResult
from rlf.types.trajectory import CallRecord, FailureClass, MissingRewardCause, ParseFailure, Repair, Trajectory, Turn
from rlf.types.world import Episode, WorldFailure, WorldRecord

# The growing token record of one trajectory: the mask is right by construction.
#
# Tokens enter by `act` where the policy sampled them, by `observe` else, and whole in a prefix that is kept. Nothing is
# ever decoded and encoded again, so each turn's prompt extends the one before it token for token. A fork begins a new
# segment, whose first tokens are its context; the stretches stand one after the other.


class TokenRecord:
    """Tokens with their action mask and rollout log-probabilities, all of one length."""

    __slots__ = ("action_mask", "forks", "rollout_logprobs", "tokens")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self.action_mask: list[bool] = []
        self.rollout_logprobs: list[float] = []
        self.forks: list[int] = []
        """Where segments begin, the first one left out."""
        self.observe(prompt)

    @classmethod
    def of_prefix(cls, trajectory: Trajectory, end: int, *, is_trained: bool) -> TokenRecord:
        """The first `end` tokens of a trajectory as they are; masked, they are a context that nothing samples."""
        record = cls(trajectory.tokens[:end])
        if is_trained:
            record.action_mask = list(trajectory.action_mask[:end])
            record.rollout_logprobs = list(trajectory.rollout_logprobs[:end])
        record.forks = [offset for offset in trajectory.forks if offset < end]
        return record

    @property
    def segment(self) -> list[int]:
        """The tokens that the policy sees: since the last fork."""
        return self.tokens[self.forks[-1] :] if self.forks else self.tokens

    def fork(self, context: Sequence[int]) -> None:
        """Begins a new segment with its context."""
        self.forks.append(len(self.tokens))
        self.observe(context)

    def act(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Appends sampled tokens with their log-probabilities."""
        assert len(tokens) == len(logprobs), f"{len(tokens)} tokens, {len(logprobs)} log-probabilities"
        self.tokens += tokens
        self.action_mask += [True] * len(tokens)
        self.rollout_logprobs += logprobs

    def observe(self, tokens: Sequence[int]) -> None:
        """Appends tokens that the policy did not sample."""
        self.tokens += tokens
        self.action_mask += [False] * len(tokens)
        self.rollout_logprobs += [0.0] * len(tokens)


@dataclass(frozen=True, slots=True)
class ChatPolicy:
    """How the rollout loop takes a turn."""

    repair: RepairPolicy = RepairPolicy.NONE
    failures: Mapping[FailureClass, FailurePolicy] = field(default_factory=dict)
    """Exceptions to `otherwise`, by class."""
    otherwise: FailurePolicy = FailurePolicy.FEEDBACK
    stop_after_call: bool = False
    """Whether a turn ends with its first call, without waiting for the model to end it."""
    forks: bool = False
    """Whether a turn's context leaves out the thinking of earlier turns."""
    context: ContextLimit | None = None
    """When a new one begins; None: never."""

    def reply(self, failure: ParseFailure) -> FailurePolicy:
        """The consequence of one failure."""
        return self.failures.get(failure.kind, self.otherwise)

    def read(self, chat: ChatFormat, text: str, *, truncated: bool) -> tuple[ParsedTurn, tuple[Repair, ...]]:
        """What a turn's text holds, and what was repaired in it."""
        parsed = chat.parse(text, truncated=truncated)
        if self.repair is RepairPolicy.NONE or not parsed.failures:
            return parsed, ()
        from rlf.chat.repair import repaired

        return repaired(chat, text, parsed, truncated=truncated)

    def failures_with(self, parsed: ParsedTurn, policy: FailurePolicy) -> list[ParseFailure]:
        """The turn's failures that a policy follows; what stands beside an answer is met with nothing."""
        if not parsed.failures:
            return []
        failures = [item for item in parsed.observed if isinstance(item, ParseFailure)]
        return [failure for failure in failures if self.reply(failure) is policy]


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Limits of one trajectory."""

    max_turns: int
    max_total_tokens: int
    max_new_tokens: int | None = None
    """Sampled tokens per turn; None: what is left of the total."""
    max_tool_calls: int | None = None
    max_images: int = 0
    """Images of the prompt and of results; those of a result that are over it are not shown."""
    max_parse_failures: int = 1
    """Failed turns answered by a corrective observation; the next failed turn ends the trajectory."""
    max_failed_turns: int | None = None
    """Turns in a row without a valid call that end the trajectory; None: none do."""

    def is_lost(self, turns: Sequence[Turn]) -> bool:
        """Whether the last turns show a policy that writes no valid call, so that more of them teach nothing."""
        most = self.max_failed_turns
        return most is not None and len(turns) >= most and all(turn.is_failed for turn in turns[-most:])


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first turns of a trajectory that another one continues: tokens, log-probabilities and turns are kept."""

    trajectory: Trajectory
    num_turns: int
    """Turns that are kept, each of which was answered by an observation; 0 keeps the prompt alone."""
    is_trained: bool = True
    """Whether tokens that were sampled in it stay actions; else they are masked, as observations are."""
    replays_calls: bool = True
    """Whether its calls are made again first, so that tools are in the state they were in. Without that they must keep
    no state: it is the caller who declares so. Where there is a world they always are."""

    @classmethod
    def choices(cls, trajectory: Trajectory) -> range:
        """How many turns may be kept of a trajectory."""
        answered = (turn.observation_end > turn.end for turn in trajectory.turns)
        return range(sum(itertools.takewhile(bool, answered)) + 1)

    def __post_init__(self) -> None:
        kept = self.trajectory.turns[: self.num_turns]
        if len(kept) != self.num_turns or any(turn.observation_end == turn.end for turn in kept):
            raise ValueError(
                f"trajectory {self.trajectory.id}: a prefix of {self.num_turns} turns was asked for; of its "
                f"{len(self.trajectory.turns)}, the first {self.choices(self.trajectory)[-1]} can be kept."
            )

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Those that are kept."""
        return self.trajectory.turns[: self.num_turns]

    def record(self) -> TokenRecord:
        """Its tokens: up to the end of the last observation, or of the prompt."""
        ends = [turn.observation_end for turn in self.turns]
        prompt_end = self.trajectory.turns[0].start if self.trajectory.turns else len(self.trajectory.tokens)
        return TokenRecord.of_prefix(self.trajectory, [prompt_end, *ends][-1], is_trained=self.is_trained)


@frozen
class Rollout:
    """One trajectory to make."""

    id: str
    """Unique among the trajectories that a policy holds open."""
    task: Task
    sample_index: int
    seed: int
    """With the seed and the policy of the trajectory that a prefix is of, that trajectory is played again."""
    prefix: Prefix | None = None
    """What it continues from; None: it begins with the task's prompt."""
    is_single_turn: bool = False
    """Whether it is over after one turn, whose calls are made."""


# The tool calls of one turn, run side by side, and what a trajectory keeps of them.

NOT_RUN = ToolResult(Outcome.LIMIT_REACHED, "The trajectory ended with this turn; the call was not run.")
OVER_LIMIT = ToolResult(Outcome.LIMIT_REACHED, "No tool calls are left. Answer now with what you know.")
_WAITED = ToolResult(Outcome.CANCELLED, "The trajectory was cancelled while the call waited to run.")

Invoke = Callable[[int], Awaitable[ToolResult]]
"""Runs the call at a place of its turn."""


def run_calls(
    records: list[CallRecord], places: Sequence[int], invoke: Invoke, world: Episode | None
) -> Awaitable[None]:
    """Runs the calls at `places` side by side, the world's own in their order; each result goes into its record."""
    if len(places) == 1:  # the most frequent case, without a task of its own
        return _run_into(records, places, invoke)
    return _run_all(records, places, invoke, world)


async def _run_all(records: list[CallRecord], places: Sequence[int], invoke: Invoke, world: Episode | None) -> None:
    # The world's own calls are one line: each meets the state that the one before it left, in the order of the turn.
    own = [] if world is None else [place for place in places if world.owns(records[place].call.name)]
    lines = [own, *([place] for place in places if place not in own)]
    running = [_run_into(records, line, invoke) for line in lines if line]
    # Not a TaskGroup: it cancels the others when one call raises, and a call that was sent may have done its work. With
    # `return_exceptions` all are waited for, also those that a cancellation reaches, so that each leaves its result.
    for fault in await asyncio.gather(*running, return_exceptions=True):
        if fault is not None:
            raise fault


async def _run_into(records: list[CallRecord], places: Sequence[int], invoke: Invoke) -> None:
    """Runs calls one after the other; each result goes into its record, also that of a cancelled call."""
    for place in places:
        call, started = records[place].call, time.perf_counter()
        try:
            records[place] = CallRecord(call, await invoke(place))
        except asyncio.CancelledError as cancelled:
            # A call that was cancelled under way has a result all the same (what it cost, how long it ran), and only
            # the exception comes back from it: the tool puts its result into the exception's arguments.
            waited = replace(_WAITED, queue_s=time.perf_counter() - started)
            records[place] = CallRecord(call, ToolResult.carried_by(cancelled) or waited)
            raise


def call_with_images(
    tools: ToolInvoker, call: ToolCall, images: Sequence[str], *, trajectory_id: str
) -> Awaitable[ToolResult]:
    """Runs a call, with the trajectory's images where its tool takes them: what is recorded is what the model wrote."""
    for tool in tools.descriptions:
        if tool.name == call.name and tool.images is not None:
            return _show_images(tools, tool, call, images, trajectory_id)
    return tools.invoke(call, trajectory_id=trajectory_id)


async def _show_images(
    tools: ToolInvoker, tool: ToolDescription, call: ToolCall, images: Sequence[str], trajectory_id: str
) -> ToolResult:
    if not images and not tool.takes_all:
        return ToolResult(Outcome.TOOL_ERROR, f"error: {call.name} works on an image, and there is none yet")
    from rlf.core.images import read_image_file

    taken = images if tool.takes_all else images[-1:]
    files = await asyncio.to_thread(lambda: [read_image_file(one).data for one in taken])
    texts = [base64.b64encode(data).decode() for data in files]
    arguments = {**call.arguments, tool.images or "": texts if tool.takes_all else texts[0]}
    return await tools.invoke(ToolCall(call.name, arguments), trajectory_id=trajectory_id)


def tool_name(tool: str) -> str:
    """The name of a tool among causes."""
    return f"tool {tool!r}"


def world_name(world: WorldRecord) -> str:
    """The name of a world among causes."""
    return f"world {world.name or world.kind!r}"


def find_broken(records: Sequence[CallRecord]) -> MissingRewardCause | None:
    """The first call that failed for a reason outside the policy, as what breaks its trajectory."""
    for name, result in ((tool_name(record.call.name), record.result) for record in records):
        if result.outcome.is_infrastructure:
            words = f"{name}: {result.outcome}: {result.text}"
            return MissingRewardCause(name, words, is_gone=result.outcome is Outcome.GONE)
    return None


def world_cause(failure: WorldFailure) -> MissingRewardCause:
    """A world's failure, as what breaks its trajectory."""
    return MissingRewardCause(f"world {failure.world!r}", str(failure), is_gone=failure.is_gone)


def with_observation(messages: Sequence[Message], observation: str | None) -> tuple[Message, ...]:
    """A prompt with what the world says first: at the end of the last user message, or as one of its own."""
    if observation is None:
        return tuple(messages)
    if not messages or messages[-1].role != "user":
        return (*messages, Message("user", observation))
    last = messages[-1]
    content = f"{last.content}\n\n{observation}" if last.content else observation
    return (*messages[:-1], replace(last, content=content))


def version_changes(start: int, versions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where the number of updates changes, with the number from there on. Args: start: the first token's offset."""
    for at, version in enumerate(versions):
        if at == 0 or version != versions[at - 1]:
            yield start + at, version
