"""Pass@k training: what a rollout adds to the best of k, over all subsets of k of its group."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, ranks_in_groups

if TYPE_CHECKING:
    from torch import Tensor


class PassAtK(Estimator):
    """A_i = (E[max(S) | i in S] - E[max(S)]) / (std(max(S)) + 1e-9);  S is any k of the group's n rewards.

    Chen et al. 2025 (arXiv:2508.10751), the analytical derivation: with rewards 0 and 1, of which m are 0, E[max(S)] is
    R = 1 - C(m, k) / C(n, k), A is (1 - R) / sqrt(R (1 - R)) for a right rollout and
    (1 - R - C(m - 1, k - 1) / C(n - 1, k - 1)) / sqrt(R (1 - R)) for a wrong one. Here for any rewards.
    """

    needs_group: ClassVar[bool] = True

    k: int = Field(default=4, ge=1)
    """Rollouts of which one has to be right; fewer than `rollout.num_generations`. 1 is `grpo`."""

    @property
    def subset_size(self) -> int:
        return self.k

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Group-normalised advantages of the best of k, not whitened; 0 in groups of k or fewer."""
        rewards_B = at_least_float32(batch.rewards_B)
        shaped_B = rewards_B.new_zeros(rewards_B.shape)
        for rows in ranks_in_groups(rewards_B, batch.group_B):
            if len(rows) > self.k:
                shaped_B[rows] = _best_of(rewards_B[rows], self.k)
        return from_returns(shaped_B, batch)


def _best_of(ascending_N: Tensor, k: int) -> Tensor:
    """A of one group's rewards, which are sorted. Counted from the best, so that a best that is certain gives 0."""
    num = len(ascending_N)
    below_N = ascending_N - ascending_N[-1]
    chance_N = below_N.new_tensor([comb(rank, k - 1) / comb(num, k) for rank in range(num)])
    mean = (chance_N * below_N).sum()
    deviation = (chance_N * (below_N - mean).square()).sum().sqrt()
    with_all = comb(num - 1, k - 1)
    own_N = below_N.new_tensor([comb(rank, k - 1) / with_all for rank in range(num)])
    other_N = below_N.new_tensor([comb(rank - 1, k - 2) / with_all if rank and k > 1 else 0.0 for rank in range(num)])
    better_N = (other_N * below_N).flip(0).cumsum(0).flip(0) - other_N * below_N
    return (own_N * below_N + better_N - mean) / (deviation + 1e-9)
