"""Statistics of success rates: intervals, pass@k, differences and the paired test. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import NamedTuple

_ROUNDING = 1e-12
_LEAST_INFLATION = 0.15
"""Few clusters may have equal sums by chance: the interval of their mean is not empty then."""


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


class Spread(NamedTuple):
    """How a mean of values in clusters varies, beside one of as many independent values."""

    inflation: float
    """Factor of its variance, the design effect."""
    freedom: float
    """Degrees of freedom of that estimate."""

    def quantile(self, confidence: float) -> float:
        """What takes the place of the normal quantile in an interval for independent values."""
        return student_quantile(confidence, self.freedom) * math.sqrt(self.inflation)

    def p(self, z: float) -> float:
        """The two-sided p-value of what for independent values is a normal statistic.

        No claim rests on clusters that vary less than independent values do.
        """
        return student_p(z / math.sqrt(max(1.0, self.inflation)), self.freedom)


def find_spread(
    values: Mapping[str, float], cluster_by_task: Mapping[str, str], *, are_shares: bool = False
) -> Spread | None:
    """The spread of a mean over questions that belong to clusters, such as documents.

    With h = n_c / n the share of a cluster and r_c the sum of its deviations from the mean, the variance is CR2's,
    sum r_c² / (1 - h_c) / n², Bell and McCaffrey 2002. Degrees of freedom are Satterthwaite's where values of a cluster
    are independent; where they are alike, clusters of unequal sizes have fewer, and as far as clusters make up the
    variance both are brought together by their geometric mean. That holds its level from five clusters on, also where
    one of them holds half of the values (`benchmarks/claims.py`), which either alone, or one fewer than clusters, does
    not.

    Values that are all equal show nothing of their clusters: each of these counts as one value, as does a single one.

    Args:
        are_shares: Whether values are successes from 0 to 1: near either end, clusters of nothing but the common one
            show little of how alike values are, and few others draw the inflation to the most that there can be.

    Returns:
        None where every question is a cluster of its own, as those are that are not named.
    """
    named = [cluster_by_task.get(task, ("", task)) for task in values]
    place_by_name = {name: place for place, name in enumerate(dict.fromkeys(named))}
    n, num_clusters = len(named), len(place_by_name)
    if num_clusters == n:
        return None
    if num_clusters == 1:
        return Spread(n, 1.0)

    import numpy as np

    places = np.array([place_by_name[name] for name in named])
    share = np.bincount(places) / n
    weight = share / np.sqrt(1 - share)
    of_alone = np.diag(weight**2 / share) - np.outer(weight, weight)
    of_alike = np.outer(weight, weight) * (np.eye(num_clusters) - share[:, None] - share + np.sum(share**2))
    alone, alike = (float(np.trace(each) ** 2 / np.sum(each**2)) for each in (of_alone, of_alike))
    deviations = np.array(list(values.values())) - fmean(values.values())
    plain = float(deviations @ deviations) / (n * (n - 1))
    if plain <= _ROUNDING:
        return Spread(n / num_clusters, math.sqrt(alone * alike))
    sums = np.bincount(places, weights=deviations)
    inflation = max(_LEAST_INFLATION, float(np.sum(sums**2 / (1 - share))) / n**2 / plain)
    most = n * float(np.sum(share**2))
    if are_shares:
        common = round(fmean(values.values()))
        num_others = len({name for name, value in zip(named, values.values(), strict=True) if value != common})
        inflation += max(0.0, most - inflation) * (1 / (1 + num_others) - 1 / (1 + num_clusters))
    correlation = min(1.0, max(0.0, (inflation - 1) / (most - 1)))
    of_clusters = 1 - (1 - correlation) / max(1.0, inflation)
    return Spread(inflation, float(alone ** (1 - of_clusters / 2) * alike ** (of_clusters / 2)))


def wilson_interval(successes: float, n: int, confidence: float = 0.95, spread: Spread | None = None) -> Interval:
    """The score interval of a proportion: it holds its confidence near 0 and 1, where the normal one does not.

    With p = successes / n and z the normal quantile at (1 + confidence) / 2:
    (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n), Wilson 1927.

    Args:
        spread: of outcomes in clusters: its quantile takes the place of z.

    Raises:
        ValueError: n is not positive, or successes lies outside 0..n.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"got {successes} successes of {n}; expected n > 0 and 0 <= successes <= n")
    z = NormalDist().inv_cdf((1 + confidence) / 2) if spread is None else spread.quantile(confidence)
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    return Interval(centre - half, centre + half).within(0.0, 1.0)


def mcnemar(num_gained: int, num_lost: int) -> float:
    """The exact two-sided p-value of McNemar's test on paired yes-or-no outcomes.

    Only pairs that changed count; under the null hypothesis each went either way with chance one half:
    p = min(1, 2 P(X <= min(gained, lost))), X binomial(gained + lost, 1/2). No change at all gives 1.
    """
    changed = num_gained + num_lost
    tail: int = sum(math.comb(changed, i) for i in range(min(num_gained, num_lost) + 1))
    return min(1.0, 2 * tail / (1 << changed))


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


def find_edge(is_below: Callable[[float], bool], low: float, high: float, num_halvings: int = 60) -> float:
    """Where between two ends `is_below` no longer holds, by halving; what it holds for lies below what it does not."""
    for _ in range(num_halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


def student_quantile(confidence: float, freedom: float) -> float:
    """The t beyond which, on both sides, 1 - confidence of Student's distribution lies."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def student_p(t: float, freedom: float) -> float:
    """The two-sided p-value of Student's t."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(t)))
