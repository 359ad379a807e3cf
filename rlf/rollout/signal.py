"""Whether trajectories hold anything to learn from, and the nouns of a diagnosis of those that hold nothing.

One rule for the watch over steps and evaluations and for a run's verdict. Pure: no model, no lineage, no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlf.core.text import shorten
from rlf.types.score import Scored

SOLVED = 0.9
"""Success from which equal rewards are the end of learning rather than its absence."""
ENOUGH = 60
"""Trajectories that say that there is nothing to learn from: where one in twenty succeeds, 60 in a row that fail are
seen once in twenty times (0.95^60 = 0.046)."""
_EXCERPT_CHARS = 160


class Signal(StrEnum):
    """What can be learned from a step's rewards."""

    SOME = "some"
    """Rewards differ where they are compared, and some trajectory succeeded."""
    NO_SUCCESS = "no_success"
    """Rewards differ, but no trajectory succeeded: only the other terms teach."""
    NO_DIFFERENCE = "no_difference"
    """Rewards are equal wherever they are compared: every advantage is 0."""
    NO_GROUPS = "no_groups"
    """Rewards differ, and dynamic filtering keeps no group."""
    NOT_SCORED = "not_scored"
    """No trajectory could be scored."""


def step_signal(metrics: Mapping[str, float], *, by_group: bool) -> Signal:
    """The signal of a training step.

    Args:
        metrics: The step's.
        by_group: Whether the estimator compares the rollouts of one task, and not those of the whole step.
    """
    if "demonstrations" in metrics:  # which are imitated, whatever they are worth
        return Signal.SOME
    if "reward/mean" not in metrics:
        return Signal.NOT_SCORED
    is_equal = metrics.get("groups/dead_share") == 1.0 if by_group else metrics.get("reward/std") == 0.0
    if is_equal:
        return Signal.NO_DIFFERENCE
    if metrics.get("groups/kept") == 0.0:
        return Signal.NO_GROUPS
    return Signal.NO_SUCCESS if metrics.get("success") == 0.0 else Signal.SOME


def evaluation_signal(scored: Sequence[Scored]) -> Signal:
    """The signal that an evaluation lets expect: its questions are tried once, so that all rewards are compared."""
    counted = [item for item in scored if item.reward is not None]
    if not counted:
        return Signal.NOT_SCORED
    if len(counted) > 1 and len({item.reward for item in counted}) == 1:
        return Signal.NO_DIFFERENCE
    return Signal.SOME if any(item.success != 0.0 for item in counted) else Signal.NO_SUCCESS


def conclusion(signal: Signal, num_seen: int, *, had_signal: bool) -> str:
    """What may be stated of trajectories with a signal other than `some`.

    Args:
        num_seen: how many there are, those of the steps before without a signal included.
        had_signal: whether the run held something to learn from before.
    """
    if had_signal:
        return "this step teaches nothing"
    nothing = f"nothing to learn {'success ' if signal is Signal.NO_SUCCESS else ''}from"
    return nothing if num_seen >= ENOUGH else f"{num_seen} trajectories are too few to say that there is {nothing}"


class CauseKind(StrEnum):
    """A reason why nothing can be learned."""

    NOT_SCORED = "not_scored"
    """Tools, services or reward terms failed."""
    NEVER_PARSED = "never_parsed"
    """The policy writes calls or answers in a form that the chat format does not read."""
    NEVER_CALLED = "never_called"
    """There are tools and the policy calls none."""
    TOOLS_FAIL = "tools_fail"
    """No call of any tool came back with a result."""
    TRUNCATED = "truncated"
    """Turns are cut by a token budget."""
    OUT_OF_TURNS = "out_of_turns"
    """The last turn still calls a tool."""
    FILTERED = "filtered"
    """Dynamic filtering drops groups that differ."""
    SAME_PROMPTS = "same_prompts"
    """Tasks with different golds have the same prompt."""
    RESULTS_CUT = "results_cut"
    """Tool results are cut to a budget before what is asked for."""
    ANSWER_COLUMN = "answer_column"
    """The golds are not what the questions ask for."""
    COMPARISON = "comparison"
    """Answers that hold the gold get nothing."""
    CONSTANT_REWARD = "constant_reward"
    """The reward is one number whatever the policy does."""
    SAME_ROLLOUTS = "same_rollouts"
    """The rollouts of a task are copies of each other."""
    TOO_HARD = "too_hard"
    """Answers are given, and all are wrong."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause."""

    kind: CauseKind
    seen: str
    """What was seen, with figures."""
    advice: str
    """What to look at or to change."""
    shows: int
    """Position of a trajectory that shows it."""


@dataclass(frozen=True, slots=True)
class DiagnosisSetting:
    """The values of a spec that a diagnosis reads."""

    tools: tuple[str, ...]
    """Names of the tools that the policy may call."""
    by_group: bool
    """Whether rewards are compared within groups."""
    gold_key: str = "data.train.answer"
    """The key that names the column of golds."""
    gold_column: str | None = None
    bounds: tuple[float, float] | None = None
    """Between which dynamic filtering keeps the mean reward of a group; None where it has no bounds."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a step or an evaluation holds nothing to learn from."""

    signal: Signal
    figures: str
    causes: tuple[Cause, ...]
    k: int
    """Position of the trajectory that `example` is of."""
    example: str
    """That trajectory in a line."""


def show_example(item: Scored) -> str:
    """`asked "..."; wrote "..."; search -> ok "..."; answered "...", gold "..."; reward 0, stopped: answered`."""
    trajectory = item.trajectory
    parts = [f"asked {quote(trajectory.task.messages[-1].content)}"]
    if trajectory.turns:
        parts.append(f"wrote {quote(trajectory.turns[0].text)}")
    if trajectory.calls:
        first = trajectory.calls[0]
        parts.append(f"{first.call.name} -> {first.result.outcome} {quote(first.result.text)}")
    if trajectory.answer is not None:
        parts.append(f"answered {quote(trajectory.answer)}")
    if trajectory.task.answer is not None:
        parts.append(f"gold {quote(str(trajectory.task.answer))}")
    reward = "no reward" if item.reward is None else f"reward {item.reward:g}"
    return "; ".join([*parts, f"{reward}, stopped: {trajectory.stop}"])


def quote(text: str) -> str:
    """A text in quotes on one line, its end left out where it is long."""
    return f'"{shorten(" ".join(text.split()), _EXCERPT_CHARS)}"'
