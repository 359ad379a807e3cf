"""Differences of graded answers: the interval of their mean, and the sign-flip test."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rlf.reports.statistics import (
    Interval,
    Spread,
    student_p,
    student_quantile,
)

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
