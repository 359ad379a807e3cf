"""GAE: PPO's advantages from a critic."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.precision import at_least_float32
from rlf.algo.returns import discounted_sum, keep_actions, token_rewards, whiten


class Gae(Estimator):
    """delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lam A_{t+1};  return_t = A_t + V_t.

    Schulman et al. 2015 (arXiv:1506.02438), equations 11, 12 and 16; whitened over the batch afterwards. Mirrors
    OpenRLHF's `get_advantages_and_returns`: V is 0 on observation tokens, so an action before an observation
    bootstraps from 0 there and reaches the next turn's value through lam only.
    """

    needs_group: ClassVar[bool] = False
    needs_critic: ClassVar[bool] = True

    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token; observation tokens count as steps."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Bias against variance: 1 is the whole return minus V, 0 one step (OpenRLHF's `lambd`)."""
    std_norm: bool = True
    """False: subtract the batch mean but do not divide by the deviation (OpenRLHF's `no_std_norm`)."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Whitened GAE advantages and the critic's targets."""
        assert batch.values_BT is not None, "gae needs values_BT from a critic"
        actions_BT = batch.action_mask_BT
        rewards_BT = token_rewards(at_least_float32(batch.rewards_B), batch)
        values_BT = keep_actions(at_least_float32(batch.values_BT), actions_BT)
        next_values_BT = values_BT.roll(-1, 1)
        next_values_BT[:, -1:] = 0.0
        delta_BT = rewards_BT + self.gamma * next_values_BT - values_BT
        advantages_BT = keep_actions(discounted_sum(delta_BT, self.gamma * self.lam), actions_BT)
        return AdvantageOutput(
            advantages_BT=whiten(advantages_BT, actions_BT, std_norm=self.std_norm),
            returns_BT=keep_actions(advantages_BT + values_BT, actions_BT),
            rewards_B=rewards_BT.sum(1),
        )
