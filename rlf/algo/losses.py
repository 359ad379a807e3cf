"""Policy loss, value loss and their exact aggregation over micro-batches.

All tensors are [B, T], aligned with one another and read only where `loss_mask_BT` is true: whatever stands
elsewhere, NaN included, reaches neither a loss nor a gradient. Invariant: with the denominator of the whole
mini-batch, the losses of its micro-batches add up to the loss of the whole.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rlf.algo.loss_config import Aggregation, CorrectionLevel, PolicyLossConfig, PolicyLossKind
from rlf.algo.returns import masked_mean, zero_outside


class PolicyLossOutput(NamedTuple):
    """The loss and its diagnostics; every tensor is a scalar, all but `loss` without gradient.

    Means run over this call's masked tokens: weigh them by `num_tokens` to join micro-batches.
    """

    loss: Tensor
    clip_fraction: Tensor
    """Share of tokens whose clipped objective is the smaller one, so that the ratio has no gradient."""
    approx_kl: Tensor
    """Mean of old_logprobs - logprobs: the k1 estimate of how far the update went (OpenRLHF's `ppo_kl`)."""
    mismatch_kl: Tensor | None
    """Mean of rollout_logprobs - old_logprobs (OpenRLHF's `vllm_kl`). None without rollout_logprobs."""
    filter_fraction: Tensor | None
    """Share of tokens (level token) or sequences (level seq) outside the thresholds. None without correction."""
    masked_fraction: Tensor | None
    """Share of tokens that the masks of `rlf.algo.corrections` leave out. None without any of them."""
    num_tokens: Tensor
    """int64: tokens of the loss mask."""


def loss_denominator(loss_mask_BT: Tensor, aggregation: Aggregation, length: int | None = None) -> float:
    """The divisor of the whole mini-batch: D of `aggregate_loss`, at least 1."""
    if aggregation is Aggregation.TOKEN_MEAN:
        return float(loss_mask_BT.sum().clamp(min=1))
    # Sequences that a mask empties (truncated, broken) are not counted: they would lower every other one's weight.
    num_sequences = float(loss_mask_BT.any(dim=1).sum().clamp(min=1))
    if aggregation is Aggregation.CONSTANT_LENGTH:
        assert length is not None, "constant_length without a length"
        return num_sequences * length
    return num_sequences


def aggregate_loss(
    values_BT: Tensor,
    loss_mask_BT: Tensor,
    aggregation: Aggregation,
    denominator: float | None = None,
    length: int | None = None,
) -> Tensor:
    """One scalar from per-token values.

        token_mean:           sum_bt m v / D            D = number of masked tokens
        seq_mean_token_mean:  sum_b (sum_t m v / sum_t m) / D    D = number of sequences with a masked token
        constant_length:      sum_bt m v / D            D = the same number of sequences x length

    The first two mirror OpenRLHF `aggregate_loss`, the third TRL's loss_type `dr_grpo`; without any masked token the
    result is 0, not NaN.

    Args:
        values_BT: float.
        loss_mask_BT: bool.
        denominator: D of the whole mini-batch, from `loss_denominator`, when this is one micro-batch of it.
            None: D of these rows.
        length: of constant_length.
    """
    # A micro-batch that divided by its own D would weigh its tokens by how the batch happened to be cut.
    if denominator is None:
        denominator = loss_denominator(loss_mask_BT, aggregation, length)
    sums_B = zero_outside(values_BT, loss_mask_BT).sum(dim=1)
    if aggregation is Aggregation.SEQ_MEAN_TOKEN_MEAN:
        sums_B = sums_B / loss_mask_BT.sum(dim=1).clamp(min=1)
    return sums_B.sum() / denominator


def policy_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    loss_mask_BT: Tensor,
    *,
    config: PolicyLossConfig,
    rollout_logprobs_BT: Tensor | None = None,
    high_entropy_BT: Tensor | None = None,
    denominator: float | None = None,
) -> PolicyLossOutput:
    """The surrogate of a kind, negated.

        ppo, gspo:  l_t = -min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)
            with dual_clip c, where A < 0:  l_t = -max(min(...), c A)
        cispo:  l_t = -sg(clip(rho, 1 - clip_low, 1 + clip_high)) A logprob
        sapo:   l_t = -sigmoid(tau (rho - 1)) 4 / tau A,  tau = tau_pos where A > 0, else tau_neg
        gpg:    l_t = -A logprob
        with correction:  w_t l_t       (`rlf.algo.corrections`)
        with masks:       keep_t l_t    (`rlf.algo.corrections`); D counts the tokens left out, too

    PPO (arXiv:1707.06347, equation 7); dual clip (arXiv:1912.09729); others at `PolicyLossKind`. ppo and
    gspo mirror OpenRLHF `PolicyLoss`, cispo and sapo TRL's `GRPOTrainer`.

    Args:
        logprobs_BT: float, of the policy being trained; the only input that gets a gradient.
        old_logprobs_BT: float, of the trainer before this batch's first update.
        loss_mask_BT: bool, the sampled tokens that count.
        rollout_logprobs_BT: float, of the sampler; needed by a correction and by a probability mask.
        high_entropy_BT: bool, the tokens of highest entropy, where `top_entropy` is below 1.
        denominator: see `aggregate_loss`.
    """
    # Everything is filled with 0 before the first operation: outside the mask stand prompts and padding, whose ratio
    # may overflow, and the gradient of an inf that is masked out afterwards is NaN.
    mask_BT = loss_mask_BT.bool()
    logprobs_BT = zero_outside(logprobs_BT, mask_BT)
    old_BT = zero_outside(old_logprobs_BT, mask_BT).detach()
    advantages_BT = zero_outside(advantages_BT, mask_BT).detach()
    rollout_BT = None if rollout_logprobs_BT is None else zero_outside(rollout_logprobs_BT, mask_BT).detach()

    # What is detached is data. On the first update the old log-probabilities may be the very numbers of `logprobs`, and
    # a graph that was left in them would cancel the policy gradient.
    ratio_BT = _token_ratio(logprobs_BT, old_BT, rollout_BT, mask_BT, config)
    loss_BT, clipped_BT = _surrogate_loss(ratio_BT, logprobs_BT, advantages_BT, config)
    filter_fraction = masked_fraction = None
    if config.correction.level is not CorrectionLevel.OFF and not config.sampler_is_old:
        assert rollout_BT is not None, "an off-policy correction needs rollout_logprobs_BT"
        from rlf.algo.corrections import correction_weights

        # Outside of the ratio: the clip range is about the update, the weight about the sampler.
        weights_BT, filter_fraction = correction_weights(old_BT, rollout_BT, mask_BT, config.correction)
        loss_BT = weights_BT * loss_BT
    if config.leaves_out:
        from rlf.algo.corrections import kept_tokens

        keep_BT = kept_tokens(logprobs_BT, old_BT, rollout_BT, advantages_BT, mask_BT, high_entropy_BT, config)
        # The mean's divisor stays: a batch of which little is kept makes a small step, and not a loud one.
        loss_BT = zero_outside(loss_BT, keep_BT)
        masked_fraction = masked_mean((~keep_BT).to(old_BT.dtype), mask_BT)
    return PolicyLossOutput(
        loss=aggregate_loss(loss_BT, mask_BT, config.aggregation, denominator, config.length),
        clip_fraction=masked_mean(clipped_BT.to(ratio_BT.dtype), mask_BT),
        approx_kl=masked_mean(old_BT - logprobs_BT.detach(), mask_BT),
        mismatch_kl=None if rollout_BT is None else masked_mean(rollout_BT - old_BT, mask_BT),
        filter_fraction=filter_fraction,
        masked_fraction=masked_fraction,
        num_tokens=mask_BT.sum(),
    )


def _token_ratio(
    logprobs_BT: Tensor, old_BT: Tensor, rollout_BT: Tensor | None, mask_BT: Tensor, config: PolicyLossConfig
) -> Tensor:
    """rho of each token, [B, T]; the same on all of a sequence for gspo.

    All but gspo: exp(clamp(logprob - old, -20, 20)).
    gspo: exp(mean_t(logprob - old)); with a correction of level token or seq, the sampler stands in for old.
    """
    if config.kind is not PolicyLossKind.GSPO:
        # exp(89) is inf in float32, and a ratio of e^20 is beyond any clip range.
        return (logprobs_BT - old_BT).clamp(min=-20.0, max=20.0).exp()
    if config.sampler_is_old:
        assert rollout_BT is not None, "an off-policy correction needs rollout_logprobs_BT"
        old_BT = rollout_BT
    return masked_mean(logprobs_BT - old_BT, mask_BT, dim=1).exp().unsqueeze(1).expand_as(logprobs_BT)


def _surrogate_loss(
    ratio_BT: Tensor, logprobs_BT: Tensor, advantages_BT: Tensor, config: PolicyLossConfig
) -> tuple[Tensor, Tensor]:
    """Per-token loss, and where a clip acts (bool): of ppo and gspo where the clipped objective is the smaller one."""
    match config.kind:
        case PolicyLossKind.PPO | PolicyLossKind.GSPO:
            return _clip_terms(ratio_BT, advantages_BT, config)
        case PolicyLossKind.CISPO:
            # CISPO bounds the weight and keeps the gradient: it flows through the log-probability, also where clipped.
            plain_BT = ratio_BT.detach()
            weight_BT = plain_BT.clamp(1 - config.clip_low, 1 + config.clip_high)
            return -weight_BT * advantages_BT * logprobs_BT, weight_BT != plain_BT
        case PolicyLossKind.SAPO:
            tau_pos, tau_neg = ratio_BT.new_tensor([config.tau_pos, config.tau_neg])
            tau_BT = torch.where(advantages_BT > 0, tau_pos, tau_neg)
            gate_BT = (tau_BT * (ratio_BT - 1)).sigmoid() * 4 / tau_BT
            return -gate_BT * advantages_BT, torch.zeros_like(ratio_BT, dtype=torch.bool)
        case PolicyLossKind.GPG:
            return -advantages_BT * logprobs_BT, torch.zeros_like(ratio_BT, dtype=torch.bool)


def _clip_terms(ratio_BT: Tensor, advantages_BT: Tensor, config: PolicyLossConfig) -> tuple[Tensor, Tensor]:
    plain_BT = ratio_BT * advantages_BT
    clipped_BT = ratio_BT.clamp(1 - config.clip_low, 1 + config.clip_high) * advantages_BT
    objective_BT = torch.min(plain_BT, clipped_BT)
    if config.dual_clip is not None:
        bounded_BT = torch.max(objective_BT, config.dual_clip * advantages_BT)
        # For A < 0 the minimum is unbounded as the ratio grows; the dual clip bounds that side alone.
        objective_BT = torch.where(advantages_BT < 0, bounded_BT, objective_BT)
    return -objective_BT, (clipped_BT < plain_BT).detach()


def value_loss(
    values_BT: Tensor,
    old_values_BT: Tensor,
    returns_BT: Tensor,
    loss_mask_BT: Tensor,
    *,
    clip: float | None = 0.5,
    denominator: float | None = None,
) -> Tensor:
    """The critic's squared error, clipped around the values that the advantages were made from; a token mean.

        l_t = max((V - G)^2, (V_old + clamp(V - V_old, -clip, clip) - G)^2) / 2

    Mirrors OpenRLHF `ValueLoss`, whose default clip is 0.5.

    Args:
        values_BT, old_values_BT, returns_BT: float; only `values_BT` gets a gradient.
        loss_mask_BT: bool.
        clip: None leaves the plain squared error.
        denominator: see `aggregate_loss`.
    """
    mask_BT = loss_mask_BT.bool()
    values_BT = zero_outside(values_BT, mask_BT)
    old_BT = zero_outside(old_values_BT, mask_BT).detach()
    returns_BT = zero_outside(returns_BT, mask_BT).detach()
    error_BT = (values_BT - returns_BT).square()
    if clip is not None:
        clipped_BT = old_BT + (values_BT - old_BT).clamp(-clip, clip)
        # The maximum takes the gradient away only where the value has moved towards the return by more than the clip.
        error_BT = torch.max(error_BT, (clipped_BT - returns_BT).square())
    return 0.5 * aggregate_loss(error_BT, mask_BT, Aggregation.TOKEN_MEAN, denominator)
