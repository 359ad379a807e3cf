"""Estimates of KL(policy || reference) from the log-probabilities of sampled tokens.

Tensor methods only, so that `KlKind` can be named in a spec without loading torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from rlf.algo.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


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
