"""Discounted returns by turn: the outcome counts less the more turns lie before it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns
from rlf.apps.estimators.turns import keys_by_turn, normal_returns, normalize_over_group, spread_turns


class TurnReturns(Estimator):
    """A_ik = N_k(G_ik) on each token of turn k;  G_ik = sum_{l >= k} gamma^(l-k) r_il.

    r_il is what terms with `stage: turn` add in turn l, and in the last turn also all that is about the trajectory as a
    whole. N_k is (x - mean(x)) / (std(x) + 1e-9) over the rollouts of the group that have a turn k. So of two rollouts
    that succeed the one with fewer turns is better. GTPO's returns (Ding et al. 2025, arXiv:2511.14846), with the
    outcome as the last turn's reward.
    """

    needs_group: ClassVar[bool] = True
    reads_turns: ClassVar[bool] = True

    gamma: float = Field(default=0.95, ge=0.0, le=1.0)
    """Discount per turn; 1 credits all turns of a rollout alike."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Returns to go, normalised over the group's rollouts turn by turn."""
        output = from_returns(normalize_over_group(at_least_float32(batch.rewards_B), batch.group_B), batch)
        if batch.turns is None:
            return output
        key_BK = keys_by_turn(batch.turns, batch.group_B)
        advantages_BT = spread_turns(normal_returns(batch.turns, key_BK, self.gamma, with_outcome=True), batch)
        return AdvantageOutput(advantages_BT, advantages_BT, output.rewards_B)
