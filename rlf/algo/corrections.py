"""What few policy losses have: weights that correct for a sampler that is not quite the trainer, and masks of tokens.

A token that the off-policy, probability and entropy masks leave out has no loss and still counts in the mean that the
others are divided by.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlf.algo.loss_config import (
    CorrectionGating,
    CorrectionLevel,
    CorrectionMode,
    OffPolicyCorrection,
    PolicyLossConfig,
)
from rlf.algo.returns import masked_mean, zero_outside


def correction_weights(
    old_logprobs_BT: Tensor, rollout_logprobs_BT: Tensor, loss_mask_BT: Tensor, correction: OffPolicyCorrection
) -> tuple[Tensor, Tensor]:
    """Weights [B, T] for the per-token loss, and the share of tokens or sequences outside the thresholds (scalar).

        clip:  w_t = clamp(s_t, low, high)
        mask:  w_t = exp(old - rollout) if low <= s <= high else 0
        mask of a product:  w_t = s if low <= s <= high else 0

    with s of `_correction_statistic`. Mirrors OpenRLHF `PolicyLoss` (truncated importance sampling, IcePop, sequence
    masks, FlashREINFORCE's binary KL), and with the level seq_product TRL's `sequence_truncate` and `sequence_mask`. A
    sequence without a masked token is neither inside nor outside.

    Args:
        old_logprobs_BT, rollout_logprobs_BT: float, trainer and sampler; 0 outside the mask.
        loss_mask_BT: bool.
    """
    low, high = correction.threshold
    statistic = _correction_statistic(old_logprobs_BT, rollout_logprobs_BT, loss_mask_BT, correction)
    inside = (statistic >= low) & (statistic <= high)
    outside = (~inside).to(statistic.dtype)
    if correction.level is not CorrectionLevel.TOKEN:
        filter_fraction = masked_mean(outside, loss_mask_BT.any(dim=1, keepdim=True))
    else:
        filter_fraction = masked_mean(outside, loss_mask_BT)
    # A clipped weight is the statistic itself, so that a sequence-level one weighs all its tokens alike; a mask only
    # chooses, and what it keeps is weighed by the plain token ratio, or by the product where that is what it judges.
    if correction.mode is CorrectionMode.CLIP:
        return statistic.clamp(min=low, max=high), filter_fraction
    if correction.level is CorrectionLevel.SEQ_PRODUCT:
        return torch.where(inside, statistic, 0.0), filter_fraction
    ratio_BT = (old_logprobs_BT - rollout_logprobs_BT).exp()
    return torch.where(inside, ratio_BT, 0.0), filter_fraction


def _correction_statistic(
    old_logprobs_BT: Tensor, rollout_logprobs_BT: Tensor, loss_mask_BT: Tensor, correction: OffPolicyCorrection
) -> Tensor:
    """The values that the thresholds judge: [B, T] per token or [B, 1] per sequence.

    ratio: q / p, over a sequence exp(mean_t log(q / p)), as a product exp(sum_t log(q / p)).
    binary_kl: p log(p / q) + (1 - p) log((1 - p) / (1 - q)); tv: |p - q|; over a sequence their mean. Departure from
    OpenRLHF: a KL that rounding leaves below 0 is 0, where its lower threshold of 0 drops half of all tokens whose
    probabilities are nearly the same.
    """
    seq = correction.level is CorrectionLevel.SEQ
    if correction.level is CorrectionLevel.SEQ_PRODUCT:
        log_ratio_BT = zero_outside(old_logprobs_BT - rollout_logprobs_BT, loss_mask_BT)
        # A product over hundreds of tokens leaves float32 (exp(89) is inf, and inf * 0 in the loss is NaN): e^20 is far
        # beyond any threshold, so the clamp changes no verdict.
        return log_ratio_BT.sum(dim=1, keepdim=True).clamp(min=-20.0, max=20.0).exp()
    if correction.gating is CorrectionGating.RATIO:
        log_ratio_BT = old_logprobs_BT - rollout_logprobs_BT
        return (masked_mean(log_ratio_BT, loss_mask_BT, dim=1).unsqueeze(1) if seq else log_ratio_BT).exp()
    # Both logarithms of the binary KL are finite only inside (0, 1), and float32 rounds a likely token to exactly 1.
    p_BT = rollout_logprobs_BT.exp().clamp(1e-6, 1 - 1e-6)
    q_BT = old_logprobs_BT.exp().clamp(1e-6, 1 - 1e-6)
    if correction.gating is CorrectionGating.BINARY_KL:
        divergence_BT = p_BT * (p_BT / q_BT).log() + (1 - p_BT) * ((1 - p_BT) / (1 - q_BT)).log()
        divergence_BT = divergence_BT.clamp(min=0.0)
    else:
        divergence_BT = (p_BT - q_BT).abs()
    return masked_mean(divergence_BT, loss_mask_BT, dim=1).unsqueeze(1) if seq else divergence_BT


def kept_tokens(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    rollout_logprobs_BT: Tensor | None,
    advantages_BT: Tensor,
    loss_mask_BT: Tensor,
    high_entropy_BT: Tensor | None,
    config: PolicyLossConfig,
) -> Tensor:
    """bool [B, T], true outside the loss mask or wherever; some mask is set. All inputs as in `policy_loss`.

    Raises AssertionError where the sampler's log-probabilities or the entropies are missing.
    """
    masks: list[Tensor] = []
    if config.off_policy_mask is not None:
        behaviour_BT = old_logprobs_BT if rollout_logprobs_BT is None else rollout_logprobs_BT
        masks.append(near_sequences(logprobs_BT, behaviour_BT, advantages_BT, loss_mask_BT, config.off_policy_mask))
    if config.probability_mask is not None:
        assert rollout_logprobs_BT is not None, "a probability mask needs rollout_logprobs_BT"
        masks.append(near_probabilities(logprobs_BT, rollout_logprobs_BT, config.probability_mask))
    if config.dppo_mask is not None:
        assert rollout_logprobs_BT is not None, "a probability mask needs rollout_logprobs_BT"
        masks.append(not_pushed_out(logprobs_BT, rollout_logprobs_BT, advantages_BT, config.dppo_mask))
    if config.top_entropy < 1:
        assert high_entropy_BT is not None, "top_entropy needs high_entropy_BT"
        masks.append(high_entropy_BT)
    return torch.stack(masks).all(dim=0)


def near_sequences(
    logprobs_BT: Tensor, behaviour_BT: Tensor, advantages_BT: Tensor, loss_mask_BT: Tensor, threshold: float
) -> Tensor:
    """keep_t = A_t >= 0 or mean_t(log(mu / pi)) <= threshold, the mean over the sequence's masked tokens.

    DeepSeek-V3.2 (arXiv:2512.02556). Mirrors TRL's `get_off_policy_mask`.
    """
    # A mask is a choice and not a quantity: without the detach its comparison would still build a graph for nothing.
    drift_B = masked_mean(behaviour_BT - logprobs_BT.detach(), loss_mask_BT, dim=1)
    return (advantages_BT >= 0) | (drift_B <= threshold).unsqueeze(1)


def near_probabilities(logprobs_BT: Tensor, rollout_logprobs_BT: Tensor, threshold: float) -> Tensor:
    """keep_t = |pi_t - mu_t| <= threshold, whatever the advantage's sign: prime-rl's IPO."""
    return (logprobs_BT.detach().exp() - rollout_logprobs_BT.exp()).abs() <= threshold


def not_pushed_out(logprobs_BT: Tensor, rollout_logprobs_BT: Tensor, advantages_BT: Tensor, threshold: float) -> Tensor:
    """keep_t = sign(A_t) (pi_t - mu_t) <= threshold: DPPO's binary total variation (arXiv:2602.04879)."""
    moved_BT = logprobs_BT.detach().exp() - rollout_logprobs_BT.exp()
    return advantages_BT.sign() * moved_BT <= threshold


def high_entropy(entropy_BT: Tensor, loss_mask_BT: Tensor, share: float) -> Tensor:
    """keep_t = H_t >= the (1 - share) quantile of H over all masked tokens of the batch; false outside the mask.

    Wang et al. 2025 (arXiv:2506.01939). Mirrors TRL's `get_high_entropy_mask`, on the whole batch.
    """
    mask_BT = loss_mask_BT.bool()
    # Not `torch.quantile`, which refuses more than 2^24 numbers; the interpolation between two of them is its own.
    sorted_N = entropy_BT[mask_BT].sort().values
    if len(sorted_N) == 0:
        return mask_BT
    place = (1 - share) * (len(sorted_N) - 1)
    low, high = sorted_N[int(place)], sorted_N[min(int(place) + 1, len(sorted_N) - 1)]
    return mask_BT & (entropy_BT >= torch.lerp(low, high, place - int(place)))
