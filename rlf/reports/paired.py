"""Differences of two sides that answered the same questions: score interval, exact tests, what can be detected.

Pure functions of numbers. A claim about several differences is made in `rlf.reports.paired`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

from rlf.reports.sheets import points
from rlf.reports.statistics import Interval, Spread, find_edge, find_spread, holm, holm_levels, mcnemar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ROUNDING = 1e-12


def tango_interval(num_gained: int, num_lost: int, num_pairs: int, confidence: float = 0.95) -> Interval:
    """The score interval of a difference of paired proportions, (gained - lost) / n, Tango 1998.

    It holds every difference D with |g - l - n D| / sqrt(n (2 q + D (1 - D))) <= z, where q is the share of lost
    pairs that is most likely under D: the larger root of 2 n q² - (g + l - (2 n - g + l) D) q - l D (1 - D) = 0,
    his equations 5 and 6. Its width is not 0 where all pairs changed or none did.

    Raises:
        ValueError: there is no pair, or the counts are not of so many pairs.
    """
    if num_pairs < 1 or min(num_gained, num_lost) < 0 or num_gained + num_lost > num_pairs:
        raise ValueError(f"got {num_gained} gained and {num_lost} lost of {num_pairs} pairs; expected n >= 1 of both")
    return _find_limits(num_gained, num_lost, num_pairs, NormalDist().inv_cdf((1 + confidence) / 2))


def flips_interval(
    num_gained: int, num_lost: int, num_pairs: int, confidence: float = 0.95, spread: Spread | None = None
) -> Interval:
    """Tango's interval with the variance times n / (n - 1), as Miettinen and Nurminen 1985 have it for two samples.

    Plain Tango covers down to 93.8 % where few of 64 pairs change, this one 94.1 %. Where the exact test rejects 0 and
    only the factor would let it in, the interval is the plain one. Of pairs in clusters their spread takes its place.
    """
    if spread is not None:
        return _find_limits(num_gained, num_lost, num_pairs, spread.quantile(confidence))
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    found = _find_limits(num_gained, num_lost, num_pairs, z * math.sqrt(num_pairs / max(1, num_pairs - 1)))
    rejected = mcnemar(num_gained, num_lost) <= 1 - confidence + _ROUNDING
    if rejected and found.low <= 0 <= found.high:
        return tango_interval(num_gained, num_lost, num_pairs, confidence)
    return found


def _find_limits(gained: int, lost: int, n: int, z: float) -> Interval:
    return Interval(-_upper_limit(lost, gained, n, z), _upper_limit(gained, lost, n, z))


def _upper_limit(gained: int, lost: int, n: int, z: float) -> float:
    """The largest difference whose score is at most z; the score falls while the difference grows."""
    return find_edge(lambda difference: _score_statistic(gained, lost, n, difference) >= -z, (gained - lost) / n, 1.0)


def _score_statistic(gained: int, lost: int, n: int, difference: float) -> float:
    b = (2 * n - gained + lost) * difference - gained - lost
    c = -lost * difference * (1 - difference)
    share_lost = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
    spread = n * (2 * share_lost + difference * (1 - difference))
    distance = gained - lost - n * difference
    if spread <= 0:
        return 0.0 if distance >= 0 else -math.inf
    return distance / math.sqrt(spread)


def mcnemar_power(num_pairs: int, share_gained: float, share_lost: float, alpha: float = 0.05) -> float:
    """Probability that the exact McNemar test of n pairs rejects at `alpha`.

    The number m of changed pairs is binomial(n, gained + lost); of m, those lost are binomial(m, lost / (gained +
    lost)), and the test rejects where the smaller of the two counts is at most the critical one of m.
    """
    import numpy as np
    from scipy.special import bdtr

    changed = share_gained + share_lost
    counts = np.arange(num_pairs + 1)
    at_most = bdtr(counts, num_pairs, changed)
    chances = np.diff(at_most, prepend=0.0)
    critical = _critical_counts(num_pairs, alpha)
    able = critical >= 0
    few_lost = bdtr(critical[able], counts[able], share_lost / changed)
    few_gained = bdtr(critical[able], counts[able], share_gained / changed)
    return float(chances[able] @ (few_lost + few_gained))


@lru_cache(maxsize=32)
def _critical_counts(most: int, alpha: float) -> NDArray[np.int64]:
    """For each number of changed pairs the largest smaller count that the exact test rejects; -1 where none is."""
    import numpy as np
    from scipy.special import bdtr

    critical = np.full(most + 1, -1)
    for changed in range(1, most + 1):
        last = critical[changed - 1]
        critical[changed] = last + (2 * bdtr(last + 1, changed, 0.5) <= alpha)
    return critical


def detectable_difference(
    num_pairs: int, share_lost: float = 0.0, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """The smallest difference that the exact McNemar test of n pairs finds with a probability of `power`.

    Args:
        share_lost: Share of the pairs that change against the difference all the same.

    Returns:
        None where no difference is large enough for so few pairs.
    """

    def is_missed(difference: float) -> bool:
        return mcnemar_power(num_pairs, difference + share_lost, share_lost, alpha) < power

    most = 1.0 - 2 * share_lost
    return None if num_pairs < 1 or is_missed(most) else find_edge(is_missed, 0.0, most, 20)


# Evidence of a difference between two sides: the test and the interval agree.
#
# A difference is claimed where the exact test, adjusted by Holm for all differences of the report, is at most 5 %. The
# interval of each difference has the confidence at which Holm's procedure tests it (95 % for a single one) and holds 0
# exactly where the difference is not claimed: at a difference of 0 the test decides. Pure functions of numbers.

ALPHA = 0.05
"""Largest chance that a report claims any difference where there is none."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One difference before it is known how many others there are."""

    difference: float
    p: float
    """Two-sided, of the test that decides whether the difference is 0."""
    interval_at: Callable[[float], Interval]
    """The interval by confidence; where p is at most 1 - confidence it excludes 0."""

    def after_looks(self, num_looks: int) -> Evidence:
        """The same of runs that may have been ended for what one of their evaluations showed.

        Look k is tested at alpha / (k (k + 1)), which sums to alpha over any number of looks, so that it does not count
        which of them was the last. Nothing changes for 0.
        """
        factor = num_looks * (num_looks + 1) or 1
        return Evidence(
            self.difference,
            min(1.0, factor * self.p),
            lambda confidence: self.interval_at(1 - (1 - confidence) / factor),
        )


@dataclass(frozen=True, slots=True)
class PairedFinding:
    """One difference of several."""

    difference: float
    interval: Interval
    """Holds 0 exactly where the difference is not shown."""
    confidence: float
    """Of the interval: 0.95 for a single difference, more for several."""
    p: float
    """Of this difference alone."""
    p_adjusted: float
    """Adjusted by Holm for all differences of the report."""

    @property
    def shown(self) -> bool:
        """Whether the difference is more than chance explains, at most 5 % of reports with none being wrong."""
        return self.p_adjusted <= ALPHA


def judge(found: Sequence[Evidence | None]) -> list[PairedFinding | None]:
    """Judges several differences of one report together; None where there is no evidence of one."""
    present = [one for one in found if one is not None]
    p_values = [one.p for one in present]
    judged = iter(map(_make_finding, present, holm(p_values), holm_levels(p_values, ALPHA)))
    return [None if one is None else next(judged) for one in found]


def _make_finding(one: Evidence, p_adjusted: float, level: float) -> PairedFinding:
    low, high = one.interval_at(1 - level)
    if p_adjusted > ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    return PairedFinding(one.difference, Interval(low, high), 1 - level, one.p, p_adjusted)


def paired_evidence(
    left: Mapping[str, float],
    right: Mapping[str, float],
    *,
    binary: bool,
    cluster_by_task: Mapping[str, str] = MappingProxyType({}),
) -> Evidence | None:
    """Of the questions that both sides answered, right minus left. None for fewer than two.

    Args:
        left: Success by question, from 0 to 1.
        binary: Whether each success is one outcome, 0 or 1: then the flips are counted, Tango's interval and the exact
            McNemar test taken of them. Else the mean of the differences is looked at, by `graded_interval`.
        cluster_by_task: What a question belongs to, of those that belong to anything.
    """
    change = {task: right[task] - left[task] for task in sorted(left.keys() & right.keys())}
    if len(change) < 2:
        return None
    differences, spread = list(change.values()), find_spread(change, cluster_by_task)
    if binary:
        return flips_evidence(differences.count(1.0), differences.count(-1.0), len(change), spread)
    from rlf.reports.graded import graded_interval, graded_p

    p = graded_p(differences, spread)
    return Evidence(fmean(differences), p, lambda level: graded_interval(differences, level, spread))


def flips_evidence(gained: int, lost: int, num_pairs: int, spread: Spread | None = None) -> Evidence:
    """Of counted flips: Tango's interval and the exact McNemar test; in clusters also the score's own."""
    p = mcnemar(gained, lost)
    if spread is not None and gained + lost:
        p = max(p, spread.p((gained - lost) / math.sqrt(gained + lost)))
    return Evidence(
        (gained - lost) / num_pairs, p, lambda level: flips_interval(gained, lost, num_pairs, level, spread)
    )


# The power of a comparison on held-out questions, before its outcome is known: the smallest difference it finds.

CHANCE = 0.8
SHARE_LOST = 0.05
"""Questions that a better run fails although the other one solves them; two runs of one spec differ by as much."""


@dataclass(frozen=True, slots=True)
class Power:
    """The smallest differences that the exact test finds with a chance of 80 %: one run a side, success 0 or 1."""

    num_questions: int
    num_compared: int
    """Arms that are compared with the baseline."""
    no_losses: float | None
    """Where every question that changes is gained; None where no difference is large enough."""
    few_losses: float | None
    """Where 5 % of the questions are lost beside those that are gained."""


def power_of(num_questions: int, num_compared: int = 1) -> Power:
    """The power of a comparison by its size."""
    sizes = [detectable_difference(num_questions, lost, ALPHA / num_compared, CHANCE) for lost in (0.0, SHARE_LOST)]
    return Power(num_questions, num_compared, *sizes)


def power_words(power: Power) -> str:
    """The power in a sentence."""
    size = f"{power.num_questions:,} questions"
    if power.num_compared > 1:
        size += f" and {power.num_compared} arms against the first"
    if power.no_losses is None:
        return f"{size} are too few to show any difference with 80 % power."
    words = f"{size} show a difference of {points(power.no_losses)} with 80 % power if no question is lost"
    if power.few_losses is None:
        return f"{words}, and none if 5 % are lost."
    return f"{words}, and of {points(power.few_losses)} if 5 % are lost."
