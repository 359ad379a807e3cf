"""The settings of the policy loss: pydantic models and names, without torch, so that a spec can hold them.

The defaults are OpenRLHF's `PolicyLoss`; what means nothing beside another setting is a validation error here.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from rlf.core.kinds import StrictModel

if TYPE_CHECKING:
    from torch import Tensor


class PolicyLossKind(StrEnum):
    """The unit that importance ratios are taken over."""

    PPO = "ppo"
    """One ratio per token (arXiv:1707.06347, equation 7)."""
    GSPO = "gspo"
    """One ratio per sequence, the geometric mean over its tokens (arXiv:2507.18071)."""
    CISPO = "cispo"
    """One ratio per token, clipped and without gradient, weighs its log-probability: no token is left out
    (MiniMax-M1, arXiv:2506.13585, equation 4)."""
    SAPO = "sapo"
    """One ratio per token, through a smooth gate in place of the clip (arXiv:2511.20347)."""
    GPG = "gpg"
    """No ratio: the plain policy gradient, -A log-probability (arXiv:2504.02546)."""


class Aggregation(StrEnum):
    """How per-token values become one number."""

    TOKEN_MEAN = "token_mean"
    """Sum over all tokens of the mini-batch / their number: each token weighs the same."""
    SEQ_MEAN_TOKEN_MEAN = "seq_mean_token_mean"
    """Mean over each sequence's tokens, then over sequences: each sequence weighs the same."""
    CONSTANT_LENGTH = "constant_length"
    """Sum over each sequence's tokens / the constant `length`, then the mean over sequences: no sequence's length
    counts (Dr. GRPO, arXiv:2503.20783, section 3.2)."""


class CorrectionLevel(StrEnum):
    """Over what the mismatch between sampler and trainer is judged."""

    OFF = "off"
    """No correction."""
    TOKEN = "token"
    """Each token by itself."""
    SEQ = "seq"
    """Each sequence by the mean over its tokens (for the ratio: the geometric mean)."""
    SEQ_PRODUCT = "seq_product"
    """Each sequence by the product of its tokens' ratios, its true importance weight; every token has this weight."""


class CorrectionMode(StrEnum):
    """The effect of a value outside the thresholds."""

    MASK = "mask"
    """Tokens outside lose their loss; the others are weighted by their own ratio, unbounded."""
    CLIP = "clip"
    """Tokens, or all tokens of a sequence, are weighted by the ratio of the level, bounded to the thresholds."""


class CorrectionGating(StrEnum):
    """The statistic that is compared with the thresholds; p of the sampler, q of the trainer, of the sampled token."""

    RATIO = "ratio"
    """q / p."""
    BINARY_KL = "binary_kl"
    """p log(p / q) + (1 - p) log((1 - p) / (1 - q))."""
    TV = "tv"
    """|p - q|."""


class OffPolicyCorrection(StrictModel):
    """Correction for a sampler whose probabilities differ from the trainer's on the same weights.

    Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training". With gspo, the levels
    token and seq put the sampler in the place of the old policy in the ratio, as OpenRLHF does, and mode, gating and
    threshold are not read; seq_product weighs the loss as with other kinds.
    """

    level: CorrectionLevel = CorrectionLevel.OFF
    """Whether tokens or whole sequences are weighed; `off` corrects nothing."""
    mode: CorrectionMode = CorrectionMode.MASK
    """What happens to a token or sequence outside of the thresholds."""
    gating: CorrectionGating = CorrectionGating.RATIO
    """What the thresholds are compared with."""
    threshold: tuple[float, float] = (0.5, 5.0)
    """Least and greatest statistic that passes, both inclusive. A divergence takes (0, greatest)."""

    @model_validator(mode="after")
    def _combination_exists(self) -> Self:
        low, high = self.threshold
        if low > high:
            raise ValueError(f"threshold: got {low} > {high}; write [low, high]")
        if high < 0:
            raise ValueError(f"threshold: got {high} as the upper bound, which excludes every token; write e.g. [0, 2]")
        divergence = self.gating is not CorrectionGating.RATIO
        if divergence and (self.mode is CorrectionMode.CLIP or self.level is CorrectionLevel.SEQ_PRODUCT):
            what = "mode clip" if self.mode is CorrectionMode.CLIP else "level seq_product"
            raise ValueError(f"{what} reads the ratio: got gating {self.gating}; write gating ratio")
        if divergence and self.level is not CorrectionLevel.OFF and low > 0:
            raise ValueError(f"gating {self.gating} has an upper bound only: write threshold [0, {high}]")
        return self


class PolicyLossConfig(StrictModel):
    """Settings of `rlf.algo.losses.policy_loss`; the defaults are OpenRLHF's."""

    kind: PolicyLossKind = PolicyLossKind.PPO
    """The surrogate that is minimised."""
    clip_low: float = Field(default=0.2, ge=0.0, le=1.0)
    """The importance ratio gains nothing below 1 - clip_low. Left out, cispo takes 1: no lower bound."""
    clip_high: float = Field(default=0.2, ge=0.0, le=1e6)
    """Nor above 1 + clip_high; DAPO sets it higher (arXiv:2503.14476, equation 10). Left out, cispo takes 4."""
    tau_pos: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """Of sapo: how steeply the gate closes around a ratio of 1 where the advantage is positive."""
    tau_neg: float = Field(default=1.05, gt=0.0, allow_inf_nan=False)
    """Of sapo: the same where it is not."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """Bound on the loss of a negative advantage, in advantages (arXiv:1912.09729). None: unbounded."""
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    """Left out, gspo and sapo take seq_mean_token_mean, the only one that gspo has."""
    length: int | None = Field(default=None, ge=1)
    """Of constant_length: the tokens that each sequence's sum is divided by. TRL takes its max_completion_length."""
    correction: OffPolicyCorrection = OffPolicyCorrection()
    """Weights or masks for a sampler that is not quite the trainer."""
    off_policy_mask: float | None = Field(default=None, gt=0.0)
    """Leaves sequences out whose advantage is negative and whose mean log(sampler / policy) is above this: what the
    policy has moved away from already (DeepSeek-V3.2, arXiv:2512.02556). None: none."""
    probability_mask: float | None = Field(default=None, gt=0.0, le=1.0)
    """Leaves tokens out whose probability differs by more than this between the policy and the sampler: the mask of
    prime-rl's IPO, INTELLECT policy optimisation, with 0.3 there. None: none."""
    dppo_mask: float | None = Field(default=None, gt=0.0, le=1.0)
    """Leaves tokens out whose probability is already above the sampler's by more than this where the advantage is
    positive, or below it where it is negative: what moves back is kept (DPPO, arXiv:2602.04879; prime-rl takes 0.2).
    None: none."""
    top_entropy: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the tokens, those where the policy's entropy is highest, that the loss is about; each still counts in
    the mean (arXiv:2506.01939, with 0.2 there). 1: all."""
    observations: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Weight of a cross-entropy on the results of tools, added to the loss: the policy learns to predict what tools
    say (ECHO). No advantage is on these tokens. 0: none."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_kinds(cls, data: Any) -> Any:
        return {**_KIND_DEFAULTS.get(str(data.get("kind")), {}), **data} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if self.kind is PolicyLossKind.GSPO and self.aggregation is not Aggregation.SEQ_MEAN_TOKEN_MEAN:
            raise ValueError(f"gspo averages per sequence: got aggregation {self.aggregation}; leave it out")
        if self.dual_clip is not None and self.kind not in (PolicyLossKind.PPO, PolicyLossKind.GSPO):
            raise ValueError(f"dual_clip bounds the losses ppo and gspo: got kind {self.kind}; remove dual_clip")
        if (self.length is not None) != (self.aggregation is Aggregation.CONSTANT_LENGTH):
            fix = "remove it" if self.length is not None else "write e.g. `length: 512`"
            raise ValueError(f"length belongs to constant_length: got {self.length} with {self.aggregation}; {fix}")
        return self

    @property
    def sampler_is_old(self) -> bool:
        """Whether the sampler stands in for the old policy in the ratio, which is all of gspo's correction then."""
        by_ratio = self.correction.level in (CorrectionLevel.TOKEN, CorrectionLevel.SEQ)
        return by_ratio and self.kind is PolicyLossKind.GSPO

    @property
    def reads_sampler(self) -> bool:
        """Whether the loss needs the sampler's log-probabilities."""
        return self.correction.level is not CorrectionLevel.OFF or {self.probability_mask, self.dppo_mask} != {None}

    @property
    def leaves_out(self) -> bool:
        """Whether masks leave out some of the tokens that the loss mask has."""
        return self.top_entropy < 1 or {self.off_policy_mask, self.probability_mask, self.dppo_mask} != {None}


_KIND_DEFAULTS: dict[str, dict[str, Any]] = {
    PolicyLossKind.GSPO: {"aggregation": Aggregation.SEQ_MEAN_TOKEN_MEAN},
    PolicyLossKind.SAPO: {"aggregation": Aggregation.SEQ_MEAN_TOKEN_MEAN},
    PolicyLossKind.CISPO: {"clip_low": 1.0, "clip_high": 4.0},
}
"""What a kind takes in place of the defaults, as its paper and the libraries do."""

# The learning rate over a run, as a pure factor of the peak rate.


class LrSchedule(StrEnum):
    """How the learning rate changes after warm-up; the names are those of transformers."""

    CONSTANT = "constant"
    """Stays at the peak. (transformers calls it `constant_with_warmup` when there is a warm-up.)"""
    LINEAR = "linear"
    """Falls on a line that reaches 0 one step after the last."""
    COSINE_WITH_MIN_LR = "cosine_with_min_lr"
    """Falls on half a cosine towards `min_ratio`; OpenRLHF's default."""


def lr_factor(step: int, total: int, warmup: int, kind: LrSchedule, min_ratio: float = 0.1) -> float:
    """The learning rate of optimiser step `step` (counted from 1) as a fraction of the peak.

        step <= warmup:  step / warmup
        later:           p = (step - 1 - warmup) / (total - warmup)
                         constant 1;  linear 1 - p;  cosine min_ratio + (1 - min_ratio) (1 + cos(pi p)) / 2

    Equals transformers' `get_scheduler` after warm-up. Departure within it: transformers starts at 0 and wastes the
    first step; here step 1 already has 1 / warmup. Steps beyond `total` keep the last factor.

    Args:
        total: optimiser steps of the run.
        warmup: of these, how many rise to the peak; 0 starts at the peak.
        min_ratio: the cosine's floor. The other kinds have none, as in transformers.
    """
    assert step >= 1, f"steps count from 1, got {step}"
    assert warmup >= 0, f"warmup must be 0 or more, got {warmup}"
    if step <= warmup:
        return step / warmup
    progress = (min(step, max(total, warmup + 1)) - 1 - warmup) / max(1, total - warmup)
    match kind:
        case LrSchedule.CONSTANT:
            return 1.0
        case LrSchedule.LINEAR:
            return 1.0 - progress
        case LrSchedule.COSINE_WITH_MIN_LR:
            return min_ratio + (1.0 - min_ratio) * 0.5 * (1.0 + math.cos(math.pi * progress))


# Statistics and exponentials are computed in float32 or better, whatever the model's dtype.


def at_least_float32(values: Tensor) -> Tensor:
    """The same numbers in float32, or in float64 if they came so."""
    return values.float() if values.dtype.itemsize < 4 else values


# Estimates of KL(policy || reference) from the log-probabilities of sampled tokens.
#
# Tensor methods only, so that `KlKind` can be named in a spec without loading torch.


class KlKind(StrEnum):
    """Which estimate; d = logprob - ref_logprob of one token sampled from the policy."""

    K1 = "k1"
    """d: unbiased, of either sign. The one to subtract from the reward; as a loss its mean gradient is 0."""
    K2 = "k2"
    """d^2 / 2: never negative; as a loss on-policy its gradient is that of the KL."""
    K3 = "k3"
    """exp(-d) - 1 + d: unbiased and never negative; GRPO's own (arXiv:2402.03300, equation 4)."""


def approx_kl(logprobs: Tensor, ref_logprobs: Tensor, kind: KlKind) -> Tensor:
    """Per-token KL estimate, each value bounded to [-10, 10]; same shape as the inputs, float32 or better.

    Schulman, "Approximating KL divergence" (joschu.net/blog/kl-approx.html). Mirrors OpenRLHF `compute_approx_kl`:
    k3 bounds d from below by -10 before the exponential, so that a bounded value never has an overflowing gradient.
    Departure: `expm1` in place of exp - 1, whose float32 rounding (6e-8) exceeds the k3 of |d| < 3e-4.
    """
    difference = at_least_float32(logprobs) - at_least_float32(ref_logprobs)
    match kind:
        case KlKind.K1:
            value = difference
        case KlKind.K2:
            value = difference.square() / 2.0
        case KlKind.K3:
            bounded = difference.clamp(min=-10.0)
            value = (-bounded).expm1() + bounded
    return value.clamp(min=-10.0, max=10.0)
