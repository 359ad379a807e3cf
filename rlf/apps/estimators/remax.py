"""ReMax: the reward of the greedy rollout of the same task as the baseline."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns


class Remax(Estimator):
    """A_i = r_i - r_greedy, the same on each token of trajectory i; r_greedy is of the task's greedy rollout.

    Li et al. 2023 (arXiv:2310.10505), algorithm 2. One greedy rollout of each task is collected beside the sampled
    ones, with the same weights; tasks whose greedy rollout has no reward are left out of the update.
    """

    needs_greedy: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Distances to the greedy reward, neither scaled nor whitened."""
        assert batch.greedy_B is not None, "remax needs greedy_B, the rewards of greedy rollouts"
        return from_returns(at_least_float32(batch.rewards_B) - at_least_float32(batch.greedy_B), batch)
