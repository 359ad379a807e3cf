"""Weights that correct the policy loss for a sampler that is not quite the trainer."""

from __future__ import annotations

import torch
from torch import Tensor

from rlf.algo.loss_config import CorrectionGating, CorrectionLevel, CorrectionMode, OffPolicyCorrection
from rlf.algo.masked import masked_mean, zero_outside


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
        return log_ratio_BT.sum(dim=1, keepdim=True).clamp(min=-20.0, max=20.0).exp()
    if correction.gating is CorrectionGating.RATIO:
        log_ratio_BT = old_logprobs_BT - rollout_logprobs_BT
        return (masked_mean(log_ratio_BT, loss_mask_BT, dim=1).unsqueeze(1) if seq else log_ratio_BT).exp()
    p_BT = rollout_logprobs_BT.exp().clamp(1e-6, 1 - 1e-6)
    q_BT = old_logprobs_BT.exp().clamp(1e-6, 1 - 1e-6)
    if correction.gating is CorrectionGating.BINARY_KL:
        divergence_BT = p_BT * (p_BT / q_BT).log() + (1 - p_BT) * ((1 - p_BT) / (1 - q_BT)).log()
        divergence_BT = divergence_BT.clamp(min=0.0)
    else:
        divergence_BT = (p_BT - q_BT).abs()
    return masked_mean(divergence_BT, loss_mask_BT, dim=1).unsqueeze(1) if seq else divergence_BT
