"""The settings of the policy loss: pydantic models and names, without torch, so that a spec can hold them.

Field for field OpenRLHF's `PolicyLoss`; what it raises or overrides at start-up is a validation error here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class PolicyLossKind(StrEnum):
    """What the importance ratio is taken over."""

    PPO = "ppo"
    """One ratio per token (arXiv:1707.06347, equation 7)."""
    GSPO = "gspo"
    """One ratio per sequence, the geometric mean over its tokens (arXiv:2507.18071, equation 7)."""


class Aggregation(StrEnum):
    """How per-token values become one number."""

    TOKEN_MEAN = "token_mean"
    """Sum over all tokens of the mini-batch / their number: each token weighs the same."""
    SEQ_MEAN_TOKEN_MEAN = "seq_mean_token_mean"
    """Mean over each sequence's tokens, then over sequences: each sequence weighs the same."""


class CorrectionLevel(StrEnum):
    """Over what the mismatch between sampler and trainer is judged."""

    OFF = "off"
    """No correction."""
    TOKEN = "token"
    """Each token by itself."""
    SEQ = "seq"
    """Each sequence by the mean over its tokens (for the ratio: the geometric mean)."""


class CorrectionMode(StrEnum):
    """What happens outside the thresholds."""

    MASK = "mask"
    """Tokens outside lose their loss; the others are weighted by their own ratio, unbounded."""
    CLIP = "clip"
    """Tokens are weighted by their ratio, bounded to the thresholds."""


class CorrectionGating(StrEnum):
    """The statistic that is held against the thresholds; p of the sampler, q of the trainer, of the sampled token."""

    RATIO = "ratio"
    """q / p."""
    BINARY_KL = "binary_kl"
    """p log(p / q) + (1 - p) log((1 - p) / (1 - q))."""
    TV = "tv"
    """|p - q|."""


class OffPolicyCorrection(BaseModel):
    """Correction for a sampler whose probabilities differ from the trainer's on the same weights.

    Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: CorrectionLevel = CorrectionLevel.OFF
    mode: CorrectionMode = CorrectionMode.MASK
    gating: CorrectionGating = CorrectionGating.RATIO
    threshold: tuple[float, float] = (0.5, 5.0)
    """Least and greatest statistic that passes, both inclusive. A divergence takes (0, greatest)."""

    @model_validator(mode="after")
    def _combination_exists(self) -> Self:
        low, high = self.threshold
        if low > high:
            raise ValueError(f"threshold: got {low} > {high}; write [low, high]")
        divergence = self.gating is not CorrectionGating.RATIO
        if self.mode is CorrectionMode.CLIP and (self.level is CorrectionLevel.SEQ or divergence):
            raise ValueError("mode clip bounds a token's ratio: it needs level token and gating ratio")
        if divergence and self.level is not CorrectionLevel.OFF and low > 0:
            raise ValueError(f"gating {self.gating} has an upper bound only: write threshold [0, {high}]")
        return self


class PolicyLossConfig(BaseModel):
    """Settings of `rlf.algo.losses.policy_loss`; the defaults are OpenRLHF's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: PolicyLossKind = PolicyLossKind.PPO
    clip_low: float = Field(default=0.2, ge=0.0, le=1.0)
    """The importance ratio gains nothing below 1 - clip_low."""
    clip_high: float = Field(default=0.2, ge=0.0)
    """Nor above 1 + clip_high; DAPO sets it higher (arXiv:2503.14476, equation 10)."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """Bound on the loss of a negative advantage, in advantages (arXiv:1912.09729, equation 5). None: unbounded."""
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    """Left out, gspo takes seq_mean_token_mean, the only one it has."""
    correction: OffPolicyCorrection = OffPolicyCorrection()

    @model_validator(mode="before")
    @classmethod
    def _gspo_default(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("kind") == PolicyLossKind.GSPO and "aggregation" not in data:
            return {**data, "aggregation": Aggregation.SEQ_MEAN_TOKEN_MEAN}
        return data

    @model_validator(mode="after")
    def _gspo_is_per_sequence(self) -> Self:
        if self.kind is PolicyLossKind.GSPO and self.aggregation is not Aggregation.SEQ_MEAN_TOKEN_MEAN:
            raise ValueError(f"gspo averages per sequence: got aggregation {self.aggregation}; leave it out")
        return self
