"""Statistics of what is not only right or wrong: means and their differences, of several samples or seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, variance
from typing import TYPE_CHECKING

from rlf.reports.statistics import Estimate, Interval, Spread, student_p, student_quantile, wilson_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_NUM_SIGN_DRAWS = 9_999
_DRAWN_AT_ONCE = 256
"""Differences whose signs are drawn together; those of the first two times as many are kept."""
_SINGLE_PRECISION = 1e-6
_MAX_ENUMERATED = 13
"""Changed questions up to which every assignment of signs is counted: 2^13 are fewer than the draws."""


def graded_interval(differences: Sequence[float], confidence: float = 0.95, spread: Spread | None = None) -> Interval:
    """The interval of a mean of paired differences within -1 to 1, for outcomes that are not only 0 and 1.

    Student's, with one difference of +s and one of -s added, s the largest size of any (1 where none differs), each
    with the weight min(1, 2 / m) where m differences are not the commonest one. Bonett and Price 2012 have the weight 1
    for outcomes of 0 and 1: few changes need it, with many the interval is wider than it has to be.
    """
    mean, error, freedom = _adjust_mean(differences)
    quantile = student_quantile(confidence, freedom) if spread is None else spread.quantile(confidence)
    return Interval(mean - quantile * error, mean + quantile * error).within(-1.0, 1.0)


def _adjust_mean(differences: Sequence[float]) -> tuple[float, float, float]:
    """Mean, its standard error and degrees of freedom once both signs are added."""
    size = max(map(abs, differences)) or 1.0
    most = max(Counter(round(value, 9) for value in differences).values())
    weight = min(1.0, 2 / max(1, len(differences) - most))
    total = len(differences) + 2 * weight
    mean = math.fsum(differences) / total
    squares = math.fsum(value * value for value in differences) + 2 * weight * size**2
    return mean, math.sqrt((squares / total - mean**2) / (total - 1)), total - 1


def graded_p(differences: Sequence[float], spread: Spread | None = None) -> float:
    """The two-sided p-value that a mean of paired differences is 0: the larger one of two tests.

    One is Fisher's randomisation test, which flips the signs of the differences: exact where neither side is better.
    The other is the test that belongs to `graded_interval`, so that both agree about 0.
    """
    mean, error, freedom = _adjust_mean(differences)
    of_mean = student_p(mean / error, freedom) if spread is None else spread.p(mean / error)
    return max(sign_flip_p(differences), of_mean)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Share of the assignments of signs whose sum is at least as far from 0, Fisher 1935.

    Every assignment up to 13 differences that are not 0, else 9,999 random ones with the one that was seen (the same
    values give the same p).
    """
    import numpy as np

    sizes = np.abs([value for value in differences if value != 0])
    seen = abs(math.fsum(differences)) - 1e-9
    if sizes.size <= _MAX_ENUMERATED:
        bits = np.arange(1 << sizes.size)[:, None] >> np.arange(sizes.size) & 1
        return float(np.mean(np.abs((2.0 * bits - 1) @ sizes) >= seen))
    sums = np.zeros(_NUM_SIGN_DRAWS)
    for start in range(0, sizes.size, _DRAWN_AT_ONCE):
        part = sizes[start : start + _DRAWN_AT_ONCE].astype(np.float32)
        sums += part @ _draw_signs(start)[: part.size]
    seen -= _SINGLE_PRECISION * float(sizes.sum())
    return float(1 + np.sum(np.abs(sums) >= seen)) / (1 + _NUM_SIGN_DRAWS)


@lru_cache(maxsize=2)
def _draw_signs(start: int) -> NDArray[np.float32]:
    """Signs by difference, from the one at `start` on, and draw: 10 MB."""
    import numpy as np

    random = np.random.default_rng(start)
    return 2 * random.integers(0, 2, size=(_DRAWN_AT_ONCE, _NUM_SIGN_DRAWS), dtype=np.int8).astype(np.float32) - 1


_FEW_VALUES = 5
"""Values of a side below which `cautious` may matter."""


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


def share_interval(values: Sequence[float], spread: Spread | None = None) -> Interval | None:
    """The 95 % interval of a mean of values from 0 to 1, each of another question: Wilson's where all are 0 or 1.

    Else Student's, of the values with their smallest and their largest added once more (0 and 1 where all are equal),
    so that it does not vanish where few differ. None for a single graded value.

    Args:
        spread: of questions in clusters.
    """
    if all(value in (0.0, 1.0) for value in values):
        return wilson_interval(math.fsum(values), len(values), spread=spread)
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    widened = [*values, *((low, high) if high > low else (0.0, 1.0))]
    quantile = student_quantile(0.95, len(values) + 1) if spread is None else spread.quantile(0.95)
    half = quantile * math.sqrt(variance(widened) / len(widened))
    return Interval(fmean(widened) - half, fmean(widened) + half).within(0.0, 1.0)


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


def welch_interval(left: Sequence[float], right: Sequence[float]) -> Interval | None:
    """Welch's 95 % interval of mean(right) - mean(left) for unequal variances. None where nothing varies."""
    found = welch_error(left, right)
    if found is None:
        return None
    error, freedom = found
    half, difference = student_quantile(0.95, freedom) * error, fmean(right) - fmean(left)
    return Interval(difference - half, difference + half)


def welch_error(left: Sequence[float], right: Sequence[float], *, cautious: bool = False) -> tuple[float, float] | None:
    """Standard error of a difference of two means, and its degrees of freedom. None where nothing varies.

    sqrt(a + b) with a = s1²/n1 and b = s2²/n2, and (a + b)² / (a²/(n1 - 1) + b²/(n2 - 1)), Welch 1947.

    Args:
        cautious: Takes df = min(n1, n2) - 1, Hsu 1938, which never claims too often, where the sides differ in number
            and one has fewer than five values: there Welch's df finds a difference of nothing in up to 10 % of cases.
    """
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
