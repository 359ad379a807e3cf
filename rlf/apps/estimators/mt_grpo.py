"""MT-GRPO: GRPO whose turns have advantages of their own beside the outcome's."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns
from rlf.apps.estimators.turns import keys_by_turn, normal_returns, normalize_over_group, spread_turns


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
        output = from_returns(normalize_over_group(rewards_B, batch.group_B, std_norm=self.std_norm), batch)
        if turns is None:
            return output
        key_BK = keys_by_turn(turns, batch.group_B)
        by_turn_BK = normal_returns(turns, key_BK, self.gamma, with_outcome=False, std_norm=self.std_norm)
        advantages_BT = output.advantages_BT + spread_turns(self.turn_coef * by_turn_BK, batch)
        return replace(output, advantages_BT=advantages_BT, returns_BT=advantages_BT)
