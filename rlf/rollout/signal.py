"""Whether trajectories hold anything to learn from: one rule for the diagnosis of a step and for a run's verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from rlf.types.score import Scored

SOLVED = 0.9
"""Success from which equal rewards are the end of learning rather than its absence."""


ENOUGH = 60
"""Trajectories that say that there is nothing to learn from: where one in twenty succeeds, 60 in a row that fail are
seen once in twenty times (0.95^60 = 0.046)."""


class Signal(StrEnum):
    """What can be learned from a step's rewards."""

    SOME = "some"
    """Rewards differ where they are compared, and some trajectory succeeded."""
    NO_SUCCESS = "no_success"
    """Rewards differ, but no trajectory succeeded: only the other terms teach."""
    NO_DIFFERENCE = "no_difference"
    """Rewards are equal wherever they are compared: every advantage is 0."""
    NOT_SCORED = "not_scored"
    """No trajectory could be scored."""


def step_signal(metrics: Mapping[str, float], *, by_group: bool) -> Signal:
    """The signal of a training step.

    Args:
        metrics: The step's.
        by_group: Whether the estimator compares the rollouts of one task, and not those of the whole step.
    """
    if "reward/mean" not in metrics:
        return Signal.NOT_SCORED
    is_equal = metrics.get("groups/dead_share") == 1.0 if by_group else metrics.get("reward/std") == 0.0
    if is_equal:
        return Signal.NO_DIFFERENCE
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
