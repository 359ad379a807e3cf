"""Statistics of success rates: intervals, pass@k and the paired test. Pure functions of numbers."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float


def wilson_interval(successes: float, n: int, confidence: float = 0.95) -> Interval:
    """The score interval of a proportion: it holds its confidence near 0 and 1, where the normal one does not.

    With p = successes / n and z the normal quantile at (1 + confidence) / 2:
    (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n), Wilson 1927.

    Raises:
        ValueError: n is not positive, or successes lies outside 0..n.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"got {successes} successes of {n}; expected n > 0 and 0 <= successes <= n")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The unbiased chance that one of k samples is correct: 1 - C(n - c, k) / C(n, k), Chen et al. 2021, eq. 1.

    Raises:
        ValueError: not 0 <= num_correct <= num_samples, or not 1 <= k <= num_samples.
    """
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(f"got {num_correct} correct of {num_samples} samples and k = {k}; expected 1 <= k <= samples")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def mcnemar(num_gained: int, num_lost: int) -> float:
    """The exact two-sided p-value of McNemar's test on paired yes-or-no outcomes.

    Only pairs that changed count; under the null hypothesis each went either way with chance one half:
    p = min(1, 2 P(X <= min(gained, lost))), X binomial(gained + lost, 1/2). No change at all gives 1.
    """
    changed = num_gained + num_lost
    tail: int = sum(math.comb(changed, i) for i in range(min(num_gained, num_lost) + 1))
    return min(1.0, 2 * tail / (1 << changed))
