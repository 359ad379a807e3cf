"""From one scalar per trajectory to a return and an advantage per token; what all estimators share.

Tensor methods only, so that estimators import without torch. Invariant: results are finite, carry no gradient and
are 0 wherever `action_mask_BT` is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.algo.estimator import AdvantageOutput
from rlf.algo.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor

    from rlf.algo.estimator import AdvantageInput


def keep_actions(values_BT: Tensor, action_mask_BT: Tensor) -> Tensor:
    """`values_BT` where the policy sampled, 0 elsewhere, even where the value is not a number."""
    return values_BT.detach().masked_fill(~action_mask_BT.bool(), 0.0)


def token_rewards(shaped_B: Tensor, batch: AdvantageInput) -> Tensor:
    """Per-token reward: the clipped scalar on the last sampled token, minus the KL penalty on every one.

        r_t = clip(R) [t = last action] - kl_coef * kl_t

    Mirrors OpenRLHF `compute_reward` (openrlhf/models/utils.py). A row without a sampled token gets none.

    Args:
        shaped_B: float, the scalar after the estimator's baseline and scaling.
    """
    if batch.reward_clip is not None:
        shaped_B = shaped_B.clamp(*batch.reward_clip)
    actions_BT = batch.action_mask_BT.bool()
    last_B = actions_BT.shape[1] - 1 - actions_BT.flip(1).byte().argmax(1)
    rewards_BT = shaped_B.new_zeros(actions_BT.shape)
    rewards_BT.scatter_(1, last_B.unsqueeze(1), (shaped_B * actions_BT.any(1)).unsqueeze(1))
    if batch.kl_BT is None or batch.kl_coef <= 0:
        return rewards_BT
    return rewards_BT - batch.kl_coef * keep_actions(at_least_float32(batch.kl_BT), actions_BT)


def discounted_sum(values_BT: Tensor, factor: float) -> Tensor:
    """`y_t = x_t + factor * y_{t+1}`, counted over all T positions, observations included, as OpenRLHF does."""
    if factor == 1.0:
        return values_BT.flip(1).cumsum(1).flip(1)
    sums_BT = values_BT.new_zeros(values_BT.shape)
    running_B = values_BT.new_zeros(len(values_BT))
    for t in reversed(range(values_BT.shape[1])):
        running_B = values_BT[:, t] + factor * running_B
        sums_BT[:, t] = running_B
    return sums_BT


def whiten(advantages_BT: Tensor, action_mask_BT: Tensor, *, std_norm: bool) -> Tensor:
    """Shift by the mean over all sampled tokens of the batch and, if `std_norm`, divide by their deviation.

        A'_t = (A_t - mean) / sqrt(max(var, 1e-8)),  var = mean((A - mean)^2)

    Mirrors the end of OpenRLHF `compute_advantages_and_returns`; long trajectories weigh more, as there.
    """
    num_actions = action_mask_BT.sum().clamp(min=1)
    mean = keep_actions(advantages_BT, action_mask_BT).sum() / num_actions
    centred_BT = keep_actions(advantages_BT - mean, action_mask_BT)
    if not std_norm:
        return centred_BT
    variance = centred_BT.square().sum() / num_actions
    return centred_BT * variance.clamp(min=1e-8).rsqrt()


def from_returns(shaped_B: Tensor, batch: AdvantageInput, *, gamma: float = 1.0) -> AdvantageOutput:
    """Advantage = discounted return of the shaped reward: the REINFORCE family before whitening.

    A_t = G_t = sum_{k >= t} gamma^(k-t) r_k, with r of `token_rewards`.
    """
    rewards_BT = token_rewards(shaped_B, batch)
    returns_BT = keep_actions(discounted_sum(rewards_BT, gamma), batch.action_mask_BT)
    return AdvantageOutput(advantages_BT=returns_BT, returns_BT=returns_BT, rewards_B=rewards_BT.sum(1))
