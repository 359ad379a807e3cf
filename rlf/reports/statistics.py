"""Statistics of success rates: intervals, pass@k, differences and the paired test. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

_FEW_VALUES = 5
"""Values of a side below which `cautious` may matter."""


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float

    def within(self, low: float, high: float) -> Interval:
        """The part of it between two ends."""
        return Interval(max(low, self.low), min(high, self.high))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % confidence interval; None where it cannot be computed."""

    value: float | None
    interval: Interval | None = None


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
    return Interval(centre - half, centre + half).within(0.0, 1.0)


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The unbiased chance that one of k samples is correct: 1 - C(n - c, k) / C(n, k), Chen et al. 2021, eq. 1.

    Raises:
        ValueError: not 0 <= num_correct <= num_samples, or not 1 <= k <= num_samples.
    """
    _check_samples(num_samples, num_correct, k)
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def pass_hat_k(num_samples: int, num_correct: int, k: int) -> float:
    """The unbiased chance that all of k samples are correct: C(c, k) / C(n, k), Yao et al. 2024 (arXiv:2406.12045).

    Raises:
        ValueError: not 0 <= num_correct <= num_samples, or not 1 <= k <= num_samples.
    """
    _check_samples(num_samples, num_correct, k)
    return math.comb(num_correct, k) / math.comb(num_samples, k)


def _check_samples(num_samples: int, num_correct: int, k: int) -> None:
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(f"got {num_correct} correct of {num_samples} samples and k = {k}; expected 1 <= k <= samples")


def mcnemar(num_gained: int, num_lost: int) -> float:
    """The exact two-sided p-value of McNemar's test on paired yes-or-no outcomes.

    Only pairs that changed count; under the null hypothesis each went either way with chance one half:
    p = min(1, 2 P(X <= min(gained, lost))), X binomial(gained + lost, 1/2). No change at all gives 1.
    """
    changed = num_gained + num_lost
    tail: int = sum(math.comb(changed, i) for i in range(min(num_gained, num_lost) + 1))
    return min(1.0, 2 * tail / (1 << changed))


def share_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The interval of a mean of values from 0 to 1, each of another question: Wilson's where all are 0 or 1.

    Else Student's, of the values with their smallest and their largest added once more (0 and 1 where all are equal),
    so that it does not vanish where few differ. None for a single graded value.
    """
    if all(value in (0.0, 1.0) for value in values):
        return wilson_interval(math.fsum(values), len(values), confidence)
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    found = mean_interval([*values, *((low, high) if high > low else (0.0, 1.0))], confidence)
    assert found is not None, "values that differ have an interval"
    return found.within(0.0, 1.0)


def mean_share(values: Sequence[float]) -> Estimate | None:
    """The mean of shares, as over seeds, with Student's interval where something varies. None without any."""
    interval = mean_interval(values)
    return Estimate(fmean(values), interval and interval.within(0.0, 1.0)) if values else None


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Student's interval of a mean, as over seeds: mean ± t(n - 1) s / sqrt(n). None where nothing varies."""
    if len(values) < 2 or variance(values) == 0:
        return None
    half = student_quantile(confidence, len(values) - 1) * math.sqrt(variance(values) / len(values))
    return Interval(fmean(values) - half, fmean(values) + half)


def welch_interval(
    left: Sequence[float], right: Sequence[float], confidence: float = 0.95, *, cautious: bool = False
) -> Interval | None:
    """Welch's interval of mean(right) - mean(left) for unequal variances, Welch 1947. None where nothing varies.

    (m2 - m1) ± t(df) sqrt(a + b) with a = s1²/n1, b = s2²/n2 and df = (a + b)² / (a²/(n1 - 1) + b²/(n2 - 1)).

    Args:
        cautious: Takes df = min(n1, n2) - 1, Hsu 1938, which never claims too often, where the sides differ in number
            and one has fewer than five values: there Welch's df finds a difference of nothing in up to 10 % of cases.
    """
    found = _welch_error(left, right, cautious=cautious)
    if found is None:
        return None
    error, freedom = found
    half = student_quantile(confidence, freedom) * error
    difference = fmean(right) - fmean(left)
    return Interval(difference - half, difference + half)


def welch_p(left: Sequence[float], right: Sequence[float], *, cautious: bool = False) -> float | None:
    """The two-sided p-value of Welch's test that two means are equal. None where nothing varies."""
    found = _welch_error(left, right, cautious=cautious)
    return None if found is None else student_p((fmean(right) - fmean(left)) / found[0], found[1])


def _welch_error(left: Sequence[float], right: Sequence[float], *, cautious: bool) -> tuple[float, float] | None:
    """Standard error of the difference and its degrees of freedom."""
    if len(left) < 2 or len(right) < 2:
        return None
    a, b = variance(left) / len(left), variance(right) / len(right)
    if a + b == 0:
        return None
    fewest = min(len(left), len(right))
    if cautious and fewest < _FEW_VALUES and len(left) != len(right):
        return math.sqrt(a + b), fewest - 1
    share = a / (a + b)
    freedom = 1 / (share**2 / (len(left) - 1) + (1 - share) ** 2 / (len(right) - 1))
    return math.sqrt(a + b), freedom


def area_under(steps: Sequence[float], values: Sequence[float]) -> float | None:
    """Mean height of a curve by trapezoids, over the range of its steps. None for fewer than two points."""
    if len(steps) < 2 or steps[-1] == steps[0]:
        return None
    pieces = zip(steps, steps[1:], values, values[1:], strict=False)
    return sum((x2 - x1) * (y1 + y2) / 2 for x1, x2, y1, y2 in pieces) / (steps[-1] - steps[0])


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for being several, in the same order, Holm 1979.

    With p(1) <= ... <= p(k): max over i <= j of min(1, (k - i + 1) p(i)). Those at most alpha hold together with a
    chance of error of at most alpha.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """The level at which Holm's procedure tests each p-value, in the same order: alpha / k for the smallest.

    The j-th smallest is tested at alpha / (k - j + 1); from the first that is not rejected on, all have its level.
    Thus p <= level exactly where the adjusted p-value is at most alpha.
    """
    levels = [alpha] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    stopped: float | None = None
    for rank, at in enumerate(order):
        levels[at] = alpha / (len(order) - rank) if stopped is None else stopped
        if stopped is None and p_values[at] > levels[at]:
            stopped = levels[at]
    return levels


def student_quantile(confidence: float, freedom: float) -> float:
    """The t beyond which, on both sides, 1 - confidence of Student's distribution lies."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def student_p(t: float, freedom: float) -> float:
    """The two-sided p-value of Student's t."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(t)))
