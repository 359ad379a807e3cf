"""Whether trajectories hold anything to learn from: one rule for the diagnosis of a step and for a run's verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from rlf.types.score import Scored

SOLVED = 0.9
"""Success from which equal rewards are the end of learning rather than its absence."""


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
