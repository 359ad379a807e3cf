"""OPO: the group's mean weighted by length, the baseline of least variance, in place of the plain mean."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_least, group_sum


class Opo(Estimator):
    """A_i = r_i - sum_j(l_j r_j) / sum_j(l_j) over the group; l_j is the number of sampled tokens of trajectory j.

    Hao et al. 2025 (arXiv:2505.23585), the optimal baseline under the assumption that a trajectory's squared gradient
    grows as its length. The paper makes one exactly on-policy update per collection: `epochs: 1`, `mini_batches: 1`.
    """

    needs_group: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Deviations from the length-weighted mean, neither scaled nor whitened."""
        rewards_B = at_least_float32(batch.rewards_B)
        lengths_B = batch.action_mask_BT.sum(1).to(rewards_B.dtype)
        above_B = rewards_B - group_least(rewards_B, batch.group_B)
        total_B = group_sum(lengths_B, batch.group_B).clamp(min=1)
        return from_returns(above_B - group_sum(lengths_B * above_B, batch.group_B) / total_B, batch)
