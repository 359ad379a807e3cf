"""Which tokens the policy loss is about, beyond the loss mask: the off-policy, probability and entropy masks.

A token that these leave out has no loss and still counts in the mean that the others are divided by.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlf.algo.loss_config import PolicyLossConfig
from rlf.algo.masked import masked_mean


def kept_tokens(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    rollout_logprobs_BT: Tensor | None,
    advantages_BT: Tensor,
    loss_mask_BT: Tensor,
    high_entropy_BT: Tensor | None,
    config: PolicyLossConfig,
) -> Tensor | None:
    """bool [B, T], true outside the loss mask or wherever; None where no mask is set. All inputs as in `policy_loss`.

    Raises AssertionError where the sampler's log-probabilities or the entropies are missing.
    """
    masks: list[Tensor] = []
    if config.off_policy_mask is not None:
        behaviour_BT = old_logprobs_BT if rollout_logprobs_BT is None else rollout_logprobs_BT
        masks.append(near_sequences(logprobs_BT, behaviour_BT, advantages_BT, loss_mask_BT, config.off_policy_mask))
    if config.probability_mask is not None:
        assert rollout_logprobs_BT is not None, "a probability mask needs rollout_logprobs_BT"
        masks.append(near_probabilities(logprobs_BT, rollout_logprobs_BT, config.probability_mask))
    if config.top_entropy < 1:
        assert high_entropy_BT is not None, "top_entropy needs high_entropy_BT"
        masks.append(high_entropy_BT)
    return torch.stack(masks).all(dim=0) if masks else None


def near_sequences(
    logprobs_BT: Tensor, behaviour_BT: Tensor, advantages_BT: Tensor, loss_mask_BT: Tensor, threshold: float
) -> Tensor:
    """keep_t = A_t >= 0 or mean_t(log(mu / pi)) <= threshold, the mean over the sequence's masked tokens.

    DeepSeek-V3.2 (arXiv:2512.02556). Mirrors TRL's `get_off_policy_mask`.
    """
    drift_B = masked_mean(behaviour_BT - logprobs_BT.detach(), loss_mask_BT, dim=1)
    return (advantages_BT >= 0) | (drift_B <= threshold).unsqueeze(1)


def near_probabilities(logprobs_BT: Tensor, rollout_logprobs_BT: Tensor, threshold: float) -> Tensor:
    """keep_t = |pi_t - mu_t| <= threshold, whatever the advantage's sign: prime-rl's IPO."""
    return (logprobs_BT.detach().exp() - rollout_logprobs_BT.exp()).abs() <= threshold


def high_entropy(entropy_BT: Tensor, loss_mask_BT: Tensor, share: float) -> Tensor:
    """keep_t = H_t >= the (1 - share) quantile of H over all masked tokens of the batch; false outside the mask.

    Wang et al. 2025 (arXiv:2506.01939). Mirrors TRL's `get_high_entropy_mask`, on the whole batch.
    """
    mask_BT = loss_mask_BT.bool()
    sorted_N = entropy_BT[mask_BT].sort().values
    if len(sorted_N) == 0:
        return mask_BT
    place = (1 - share) * (len(sorted_N) - 1)
    low, high = sorted_N[int(place)], sorted_N[min(int(place) + 1, len(sorted_N) - 1)]
    return mask_BT & (entropy_BT >= torch.lerp(low, high, place - int(place)))
