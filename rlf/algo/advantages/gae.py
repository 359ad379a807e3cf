"""GAE: PPO's advantages from a critic."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import discounted_sum, keep_actions, token_rewards, whiten

if TYPE_CHECKING:
    from torch import Tensor


class Observations(StrEnum):
    """Where an action before an observation bootstraps from."""

    BOOTSTRAP = "bootstrap"
    """From the observation, whose value is 0 and which is a step of its own: OpenRLHF's way."""
    SKIP = "skip"
    """From the first action after it, as if nothing stood between them: verl's way."""


class Gae(Estimator):
    """delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lam A_{t+1};  return_t = A_t + V_t.

    Schulman et al. 2015 (arXiv:1506.02438), equations 11 and 16; whitened over the batch afterwards. By default it
    mirrors OpenRLHF's `get_advantages_and_returns`: V is 0 on observation tokens, so an action before an observation
    bootstraps from 0 there and reaches the next turn's value through lam only. `observations: skip` mirrors verl's
    `compute_gae_advantage_return`, where t + 1 is the next sampled token. Both are the same with gamma and lam of 1;
    with others they differ by up to half a deviation over turns.
    """

    spans_batch: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = True

    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token; observation tokens count as steps, unless they are skipped."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Bias against variance: 1 is the whole return minus V, 0 one step (OpenRLHF's `lambd`)."""
    observations: Observations = Observations.BOOTSTRAP
    """What an action before an observation bootstraps from."""
    std_norm: bool = True
    """False: subtract the batch mean but do not divide by the deviation (OpenRLHF's `no_std_norm`)."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Whitened GAE advantages and the critic's targets."""
        assert batch.values_BT is not None, "gae needs values_BT from a critic"
        actions_BT = batch.action_mask_BT
        rewards_BT = token_rewards(at_least_float32(batch.rewards_B), batch)
        values_BT = keep_actions(at_least_float32(batch.values_BT), actions_BT)
        advantages_BT = keep_actions(self._raw_advantages(rewards_BT, values_BT, actions_BT), actions_BT)
        return AdvantageOutput(
            advantages_BT=whiten(advantages_BT, actions_BT, std_norm=self.std_norm),
            returns_BT=keep_actions(advantages_BT + values_BT, actions_BT),
            rewards_B=rewards_BT.sum(1),
        )

    def _raw_advantages(self, rewards_BT: Tensor, values_BT: Tensor, actions_BT: Tensor) -> Tensor:
        """A_t before whitening; any number on observations."""
        if self.observations is Observations.SKIP:
            return self._skip_observations(rewards_BT, values_BT, actions_BT)
        next_values_BT = values_BT.roll(-1, 1)
        next_values_BT[:, -1:] = 0.0
        delta_BT = rewards_BT + self.gamma * next_values_BT - values_BT
        return discounted_sum(delta_BT, self.gamma * self.lam)

    def _skip_observations(self, rewards_BT: Tensor, values_BT: Tensor, actions_BT: Tensor) -> Tensor:
        """A_t where t + 1 is the next sampled token of the row."""
        advantages_BT = values_BT.new_zeros(values_BT.shape)
        next_value_B = running_B = values_BT.new_zeros(len(values_BT))
        for t in reversed(range(values_BT.shape[1])):
            sampled_B, value_B = actions_BT[:, t].bool(), values_BT[:, t]
            delta_B = rewards_BT[:, t] + self.gamma * next_value_B - value_B
            running_B = (delta_B + self.gamma * self.lam * running_B).where(sampled_B, running_B)
            next_value_B = value_B.where(sampled_B, next_value_B)
            advantages_BT[:, t] = running_B
        return advantages_BT
