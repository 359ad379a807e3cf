"""GDPO: each term of the reward is normalised over the group by itself, then they are summed."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_deviation, group_std


class Gdpo(Estimator):
    """A_i = S_i / (std(S) + 1e-4) over the batch;  S_i = sum_k w_k N(r_ik), N(x) = (x - mean(x)) / (std(x) + 1e-9).

    r_ik is the value of term k, w_k its weight, N over those of the group that the term has a value for. A term whose
    values spread little counts as much as one whose values spread widely. With one term it is `grpo` up to the scale
    of the batch. Liu et al. 2026 (arXiv:2601.05242); S has the mean 0 by construction, so that the batch's mean is not
    subtracted. Where terms cancel, the 1e-4 keeps what rounding leaves of them small. TRL's
    `multi_objective_aggregation: normalize_then_sum`, verl's `gdpo`.
    """

    spans_batch: ClassVar[bool] = True
    needs_group: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Sums of group-normalised terms, scaled by their deviation over the batch's trajectories."""
        rewards_B = at_least_float32(batch.rewards_B)
        sums_B = rewards_B.new_zeros(rewards_B.shape)
        terms = batch.terms
        if terms is None:
            sums_B = group_deviation(rewards_B, batch.group_B) / (group_std(rewards_B, batch.group_B) + 1e-9)
        else:
            for values_B, is_scored_B, weight in zip(
                at_least_float32(terms.values_BK).T, terms.is_scored_BK.T, terms.weights_K.abs(), strict=True
            ):
                values_N, group_N = values_B[is_scored_B], batch.group_B[is_scored_B]
                normal_N = group_deviation(values_N, group_N) / (group_std(values_N, group_N) + 1e-9)
                sums_B[is_scored_B] += (weight * normal_N).to(sums_B.dtype)
        deviation = (sums_B.square().sum() / max(len(sums_B) - 1, 1)).sqrt()
        return from_returns(sums_B / (deviation + 1e-4), batch)
