"""RLOO: each rollout is measured against the mean of the others of its group."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_deviation, group_size


class Rloo(Estimator):
    """A_i = r_i - mean_{j != i}(r_j) = n / (n - 1) * (r_i - mean(r)) over the group of n.

    Ahmadian et al. 2024 (arXiv:2402.14740), section 2.3. Mirrors OpenRLHF's `rloo`. A group of one has no others:
    its advantage is 0.
    """

    needs_group: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Leave-one-out advantages, not whitened over the batch."""
        rewards_B = at_least_float32(batch.rewards_B)
        size_B = group_size(rewards_B, batch.group_B)
        scale_B = size_B / (size_B - 1).clamp(min=1)
        return from_returns(group_deviation(rewards_B, batch.group_B) * scale_B, batch)
