"""How far a judge agrees with people, and what it is partial to. Pure functions of numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation, fmean

from rlf.reports.statistics import Estimate, Interval, welch_interval, wilson_interval
from rlf.rewards.judging.kappa import cohen_kappa

_LEAST_PER_LEVEL = 5
"""Items of a label, on average, from which those of equal label are compared; else those on the same side of 1/2."""


@dataclass(frozen=True, slots=True)
class PositionBias:
    """The effect of the order of two answers."""

    flipped: float
    """Share of the pairs whose verdict is another one in the other order."""
    first: float
    """Mean value of the answer at first place, over both orders: 1/2 without bias."""


def accuracy(pairs: Sequence[tuple[Hashable, Hashable]]) -> Estimate:
    """Share of the pairs that agree, with Wilson's interval."""
    if not pairs:
        return Estimate(None, None)
    agreed = sum(one == other for one, other in pairs)
    return Estimate(agreed / len(pairs), wilson_interval(agreed, len(pairs)))


def kappa(pairs: Sequence[tuple[Hashable, Hashable]], num_resamples: int = 2_000) -> Estimate:
    """Cohen's kappa with the percentile bootstrap interval over pairs, Efron 1979; the same pairs give the same one.

    Resamples without a kappa are left out. Where every pair agrees all resamples do too and the interval would have no
    width: its lower end is then that of Wilson's interval of the agreement, corrected for the same chance agreement.
    """
    value = cohen_kappa(pairs)
    if value is None or len(pairs) < 2:
        return Estimate(value, None)
    import numpy as np

    random = np.random.default_rng(0)
    drawn = (random.integers(len(pairs), size=len(pairs)) for _ in range(num_resamples))
    resampled = (cohen_kappa([pairs[at] for at in places]) for places in drawn)
    found = [each for each in resampled if each is not None]
    if not found:
        return Estimate(value, None)
    low, high = np.quantile(found, [0.025, 0.975])
    if all(one == other for one, other in pairs):
        by_chance = math.fsum((count / len(pairs)) ** 2 for count in Counter(one for one, _ in pairs).values())
        low = (wilson_interval(len(pairs), len(pairs)).low - by_chance) / (1 - by_chance)
    return Estimate(value, Interval(float(low), float(high)))


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, ties sharing theirs, Spearman 1904. None where either never varies."""
    from scipy.stats import rankdata

    return _pearson_correlation(rankdata(one).tolist(), rankdata(other).tolist())


def length_bias(scores: Sequence[float], lengths: Sequence[int], labels: Sequence[float]) -> float | None:
    """Rank correlation of score and length among answers of equal label; 0 without bias.

    Ranks are taken within each label, centred there, and correlated over all: people's liking of longer answers, which
    is no bias, lies between labels. None where nothing varies.
    """
    from scipy.stats import rankdata

    are_many = len(set(labels)) > max(2, len(labels) // _LEAST_PER_LEVEL)
    levels = [float(label >= 0.5) for label in labels] if are_many else labels
    xs, ys = list[float](), list[float]()
    for level in set(levels):
        at = [k for k, each in enumerate(levels) if each == level]
        for ranks, into in ((rankdata([scores[k] for k in at]), xs), (rankdata([lengths[k] for k in at]), ys)):
            into += (ranks - ranks.mean()).tolist()
    return _pearson_correlation(xs, ys)


def self_preference(own: Sequence[float], others: Sequence[float]) -> Estimate:
    """How much more the judge gives its own answers than people do, beyond what it gives others'.

    Args:
        own: score minus label of each answer that the judge's model wrote.
        others: the same of every other author's.

    Returns:
        mean(own) - mean(others) with Welch's interval.
    """
    if not own or not others:
        return Estimate(None, None)
    return Estimate(fmean(own) - fmean(others), welch_interval(others, own))


def position_bias(orders: Sequence[tuple[float, float]]) -> PositionBias | None:
    """Of pairs asked in both orders.

    Args:
        orders: value of the answer at first place, in one order and in the other.
    """
    if not orders:
        return None
    flipped = fmean(_winner_sign(straight) != _winner_sign(1 - swapped) for straight, swapped in orders)
    return PositionBias(flipped, fmean(each for order in orders for each in order))


def _winner_sign(value: float) -> int:
    return (value > 0.5) - (value < 0.5)


def _pearson_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """None where either never varies."""
    try:
        return correlation(one, other)
    except StatisticsError:
        return None
