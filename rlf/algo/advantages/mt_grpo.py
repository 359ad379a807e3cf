"""MT-GRPO: GRPO whose turns have advantages of their own beside the outcome's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator, TurnRewards
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import discounted_sum, from_returns, group_deviation, group_std, keep_actions

if TYPE_CHECKING:
    from torch import Tensor


class MtGrpo(Estimator):
    """A_ik = N(R_i) + turn_coef N_k(G_ik) on each token of turn k;  G_ik = sum_{l >= k} gamma^(l-k) r_il.

    R is the part of the reward that is about the whole trajectory, r_ik what the terms with `stage: turn` add in turn
    k. N is (x - mean(x)) / (std(x) + 1e-9) over the group, as in `grpo`, and N_k the same over those of the group that
    have a turn k. Without such terms it is `grpo`.

    Zeng et al. 2025 (arXiv:2505.11821) give a turn its own group-normalised reward beside the outcome's, for two turns
    of which the first is rewarded; with more, returns to go are normalised as in GTPO (Ding et al. 2025,
    arXiv:2511.14846). Departures: a rollout that ends early is left out of the groups of later turns, and outcomes are
    not discounted.
    """

    needs_group: ClassVar[bool] = True
    reads_turns: ClassVar[bool] = True

    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per turn: 0 credits a turn with its own reward alone, 1 with all that follow too."""
    turn_coef: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    """Weight of the turns' advantages relative to the outcome's. Terms' weights matter only among turn terms, where
    rewards are divided by their deviation."""
    std_norm: bool = True
    """False: subtract the group's mean but do not divide by the deviation, so that the terms' weights count."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Group-normalised outcome and returns to go, each clipped by `reward_clip`, not whitened over the batch.

        `rewards_B` of the output is the outcome's part.
        """
        turns = batch.turns
        rewards_B = at_least_float32(batch.rewards_B if turns is None else turns.outcome_B)
        output = from_returns(self._normalize_values(rewards_B, batch.group_B), batch)
        if turns is None:
            return output
        by_turn_BK = self.turn_coef * self._turn_advantages(turns, batch.group_B)
        if batch.reward_clip is not None:
            by_turn_BK = by_turn_BK.clamp(*batch.reward_clip)
        by_token_BT = keep_actions(by_turn_BK.gather(1, turns.turn_BT), batch.action_mask_BT)
        advantages_BT = output.advantages_BT + by_token_BT
        return replace(output, advantages_BT=advantages_BT, returns_BT=advantages_BT)

    def _turn_advantages(self, turns: TurnRewards, group_B: Tensor) -> Tensor:
        """N_k(G_ik) as [B, K]; 0 where there is no turn k."""
        rewards_BK = at_least_float32(turns.rewards_BK)
        is_there_BK = rewards_BK.new_ones(rewards_BK.shape).cumsum(1) <= turns.num_turns_B.unsqueeze(1)
        to_go_BK = discounted_sum(rewards_BK.masked_fill(~is_there_BK, 0.0), self.gamma)
        normal_BK = rewards_BK.new_zeros(rewards_BK.shape)
        for turn in range(rewards_BK.shape[1]):
            there_B = is_there_BK[:, turn]
            normal_BK[there_B, turn] = self._normalize_values(to_go_BK[there_B, turn], group_B[there_B])
        return normal_BK

    def _normalize_values(self, values_B: Tensor, group_B: Tensor) -> Tensor:
        deviation_B = group_deviation(values_B, group_B)
        return deviation_B / (group_std(values_B, group_B) + 1e-9) if self.std_norm else deviation_B
