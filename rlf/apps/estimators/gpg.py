"""GPG: group-centred rewards, scaled up for the trajectories of groups that teach nothing."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_deviation, group_sum


class Gpg(Estimator):
    """A_i = B / (B - M) (r_i - mean(r)) over the group; M of the batch's B trajectories are in groups of equal rewards.

    Chu et al. 2025 (arXiv:2504.02546) with F_norm = 1; B / (B - M) keeps gradients unbiased by
    groups that teach nothing. Its loss is `train.loss: {kind: gpg}`.
    verl's `gpg` differs: it counts trajectories with a reward of 0 as M, also in groups that teach.
    """

    spans_batch: ClassVar[bool] = True
    needs_group: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Mean-centred advantages times one factor of the whole batch, not whitened."""
        deviation_B = group_deviation(at_least_float32(batch.rewards_B), batch.group_B)
        teaches_B = group_sum(deviation_B.abs(), batch.group_B) > 0
        factor = len(deviation_B) / teaches_B.sum().clamp(min=1).to(deviation_B.dtype)
        return from_returns(deviation_B * factor, batch)
