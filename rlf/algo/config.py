"""Settings of the policy loss and of KL: plain values without torch, since the compiler reads them.

Import these from here; `losses.py` and `kl.py` hold the maths that they parametrise.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class KlKind(StrEnum):
    """Estimators of KL(policy || reference) from one sample (Schulman 2020)."""

    K1 = "k1"
    """log ratio: unbiased, high variance, may be negative."""
    K2 = "k2"
    """Half the squared log ratio: biased, low variance."""
    K3 = "k3"
    """ratio - 1 - log ratio: unbiased, never negative."""


class PolicyLossKind(StrEnum):
    """Surrogate objectives."""

    PPO = "ppo"
    """Clipped ratio per token (Schulman et al. 2017)."""
    GSPO = "gspo"
    """Clipped ratio per sequence (Zheng et al. 2025)."""


class LossAggregation(StrEnum):
    """How per-token losses become one number."""

    TOKEN_MEAN = "token_mean"
    """Mean over all action tokens of the mini-batch."""
    SEQ_MEAN_TOKEN_MEAN = "seq_mean_token_mean"
    """Mean over trajectories of each trajectory's token mean."""


class CorrectionLevel(StrEnum):
    """Where the sampler-trainer mismatch is corrected by importance weights."""

    OFF = "off"
    TOKEN = "token"
    SEQ = "seq"


class CorrectionMode(StrEnum):
    """What happens to weights outside the threshold."""

    MASK = "mask"
    CLIP = "clip"


class CorrectionGating(StrEnum):
    """Which quantity the threshold bounds."""

    RATIO = "ratio"
    BINARY_KL = "binary_kl"
    TV = "tv"


class CorrectionConfig(BaseModel):
    """Off-policy importance correction between sampler and trainer, as OpenRLHF has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    level: CorrectionLevel = CorrectionLevel.OFF
    mode: CorrectionMode = CorrectionMode.MASK
    gating: CorrectionGating = CorrectionGating.RATIO
    threshold: tuple[float, float] = (0.5, 5.0)
    """Lower and upper bound."""


class PolicyLossConfig(BaseModel):
    """The policy loss."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: PolicyLossKind = PolicyLossKind.PPO
    clip_low: float = Field(0.2, gt=0)
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = Field(0.2, gt=0)
    """The ratio is clipped above at 1 + clip_high."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound on the loss of negative advantages (Ye et al. 2020); None is off."""
    aggregation: LossAggregation = LossAggregation.TOKEN_MEAN
    correction: CorrectionConfig = CorrectionConfig()
