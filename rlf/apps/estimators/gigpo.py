"""GiGPO: beside whole rollouts, turns that begin in equal states are compared with each other."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns
from rlf.apps.estimators.turns import normal_returns, normalize_over_group, spread_turns


class Gigpo(Estimator):
    """A_ik = N(R_i) + turn_coef N_s(G_ik) on each token of turn k;  G_ik = sum_{l >= k} gamma^(l-k) r_il.

    N is (x - mean(x)) / (std(x) + 1e-9) over the group, N_s the same over all turns of its rollouts that begin in the
    state s of turn k: the world's state is equal, and so is what was read last. r_il is what terms with `stage: turn`
    add, and in the last turn all that is about the rollout as a whole. A turn whose state no other turn has gets
    nothing from N_s. Feng et al. 2025 (arXiv:2505.10978), equations 5 to 9.
    """

    needs_group: ClassVar[bool] = True
    reads_turns: ClassVar[bool] = True

    gamma: float = Field(default=0.95, ge=0.0, le=1.0)
    """Discount per turn."""
    turn_coef: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    """Weight of the turns' advantages relative to the whole rollout's."""
    std_norm: bool = True
    """False: subtract means but divide by no deviation."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Group-normalised rewards, and returns to go normalised state by state."""
        shaped_B = normalize_over_group(at_least_float32(batch.rewards_B), batch.group_B, std_norm=self.std_norm)
        output, turns = from_returns(shaped_B, batch), batch.turns
        if turns is None:
            return output
        by_turn_BK = normal_returns(turns, turns.state_BK, self.gamma, with_outcome=True, std_norm=self.std_norm)
        advantages_BT = output.advantages_BT + spread_turns(self.turn_coef * by_turn_BK, batch)
        return AdvantageOutput(advantages_BT, advantages_BT, output.rewards_B)
