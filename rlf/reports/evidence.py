"""Evidence of a difference between two sides: the test and the interval agree.

A difference is claimed where the exact test, adjusted by Holm for all differences of the report, is at most 5 %. The
interval of each difference has the confidence at which Holm's procedure tests it (95 % for a single one) and holds 0
exactly where the difference is not claimed: at a difference of 0 the test decides. Pure functions of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rlf.reports.paired import flips_interval, graded_interval, graded_p
from rlf.reports.statistics import (
    Interval,
    holm,
    holm_levels,
    mcnemar,
    newcombe_interval,
    welch_interval,
    welch_p,
)

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


@dataclass(frozen=True, slots=True)
class Finding:
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


def judge(found: Sequence[Evidence | None]) -> list[Finding | None]:
    """Judges several differences of one report together; None where there is no evidence of one."""
    present = [one for one in found if one is not None]
    p_values = [one.p for one in present]
    judged = iter(map(_make_finding, present, holm(p_values), holm_levels(p_values, ALPHA)))
    return [None if one is None else next(judged) for one in found]


def _make_finding(one: Evidence, p_adjusted: float, level: float) -> Finding:
    low, high = one.interval_at(1 - level)
    if p_adjusted > ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    return Finding(one.difference, Interval(low, high), 1 - level, one.p, p_adjusted)


def paired_evidence(left: Mapping[str, float], right: Mapping[str, float], *, binary: bool) -> Evidence | None:
    """Of the questions that both sides answered, right minus left. None for fewer than two.

    Args:
        left: Success by question, from 0 to 1.
        binary: Whether each success is one outcome, 0 or 1: then the flips are counted, Tango's interval and the exact
            McNemar test taken of them. Else the mean of the differences is looked at, by `graded_interval`.
    """
    shared = sorted(left.keys() & right.keys())
    if len(shared) < 2:
        return None
    differences = [right[task] - left[task] for task in shared]
    if not binary:
        return Evidence(fmean(differences), graded_p(differences), lambda level: graded_interval(differences, level))
    gained, lost = differences.count(1.0), differences.count(-1.0)
    return flips_evidence(gained, lost, len(shared))


def flips_evidence(gained: int, lost: int, num_pairs: int) -> Evidence:
    """Of counted flips: Tango's interval and the exact McNemar test."""
    return Evidence(
        (gained - lost) / num_pairs,
        mcnemar(gained, lost),
        lambda level: flips_interval(gained, lost, num_pairs, level),
    )


def seeds_evidence(left: Sequence[float], right: Sequence[float]) -> Evidence | None:
    """Of the runs of two sides, by Welch. None where a side is one run or nothing varies."""
    p = welch_p(left, right, cautious=True)
    if p is None:
        return None

    def interval_at(confidence: float) -> Interval:
        return (welch_interval(left, right, confidence, cautious=True) or Interval(0.0, 0.0)).within(-1.0, 1.0)

    return Evidence(fmean(right) - fmean(left), p, interval_at)


def unpaired_evidence(left: Sequence[float], right: Sequence[float]) -> Evidence:
    """Of sides that were asked different questions: Newcombe's interval and its own test, and Fisher's exact one."""
    sides = [(math.fsum(side), len(side)) for side in (left, right)]
    p = _newcombe_p(*sides)
    if all(value in (0.0, 1.0) for value in (*left, *right)):
        p = max(p, _fisher_p(*sides))
    return Evidence(fmean(right) - fmean(left), p, lambda level: newcombe_interval(sides[0], sides[1], level))


def _newcombe_p(left: tuple[float, int], right: tuple[float, int]) -> float:
    """1 minus the confidence at which Newcombe's interval ends at 0."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        ends = newcombe_interval(left, right, 1 - middle) if middle < 1 else (0.0, 0.0)
        low, high = (middle, high) if ends[0] <= 0 <= ends[1] else (low, middle)
    return high


def _fisher_p(left: tuple[float, int], right: tuple[float, int]) -> float:
    from scipy.stats import fisher_exact

    table = [[round(successes), n - round(successes)] for successes, n in (left, right)]
    return float(fisher_exact(table).pvalue)
