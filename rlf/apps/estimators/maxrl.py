"""MaxRL: the group's mean is baseline and scale, so that a task that is seldom solved weighs more."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_deviation, group_mean


class Maxrl(Estimator):
    """A_i = (r_i - mean(r)) / mean(r) over the group, 0 where the mean is not above 0.

    Maximum likelihood reinforcement learning (arXiv:2602.02710): for rewards of 0 and 1 it follows the gradient of the
    log of the success rate, of which n rollouts see the first n terms of its series. Rewards below 0 have no such
    reading. One success among n has the advantage n - 1, which `train.reward_clip` cuts at 10.
    """

    needs_group: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Deviations in units of the group's mean, not whitened over the batch."""
        rewards_B = at_least_float32(batch.rewards_B)
        mean_B = group_mean(rewards_B, batch.group_B)
        scaled_B = group_deviation(rewards_B, batch.group_B) / mean_B.where(mean_B > 0, 1.0)
        return from_returns(scaled_B.where(mean_B > 0, 0.0), batch)
