"""GRPO: the group's rollouts are each other's baseline and scale."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_deviation, group_std


class Grpo(Estimator):
    """A_i = (r_i - mean(r)) / (std(r) + 1e-9) over the group, the same on each token of trajectory i.

    DeepSeekMath (arXiv:2402.03300), section 4.1.2. Mirrors OpenRLHF's `group_norm`: the deviation divides by n - 1.
    Equal rewards give exactly 0 (`groups.group_deviation` says how OpenRLHF departs from that).
    """

    needs_group: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Group-normalised advantages, not whitened over the batch."""
        rewards_B = at_least_float32(batch.rewards_B)
        deviation_B = group_deviation(rewards_B, batch.group_B)
        return from_returns(deviation_B / (group_std(rewards_B, batch.group_B) + 1e-9), batch)
