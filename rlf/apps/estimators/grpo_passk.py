"""GRPO for the best of a group: only the best rollout has an advantage, by how far it leads."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_std, ranks_in_groups


class GrpoPassk(Estimator):
    """A_best = (r_best - r_second) / (std(r) + 1e-6) over the group, and 0 for all others; ties give 0 throughout.

    Tang et al. 2025 (arXiv:2503.19595): pass@k for a k of the whole group, with the best of the others as the
    baseline. Equals verl's `grpo_passk`.
    """

    needs_group: ClassVar[bool] = True

    std_norm: bool = Field(default=True)
    """False: the lead itself, not divided by the group's deviation (verl's `norm_adv_by_std_in_grpo`)."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """The lead of each group's best trajectory."""
        rewards_B = at_least_float32(batch.rewards_B)
        lead_B = rewards_B.new_zeros(rewards_B.shape)
        for rows in ranks_in_groups(rewards_B, batch.group_B):
            if len(rows) > 1:
                lead_B[rows[-1]] = rewards_B[rows[-1]] - rewards_B[rows[-2]]
        return from_returns(lead_B / (group_std(rewards_B, batch.group_B) + 1e-6) if self.std_norm else lead_B, batch)
