"""Coverage of the intervals and the share of false claims of `rlf runs compare`, by simulation.

    python benchmarks/claims.py [--simulations 2000]

Each setting draws what two or more arms answer on the same questions, and asks `rlf.reports.paired` what the reports
print: an interval that holds the true difference is covered; a claim where there is no difference is false. `score` is
the score interval alone, `printed` the one that the reports show, which also holds 0 where the exact test does not
reject: it covers more at a difference of 0, by what the exact test of few flips leaves of its 5 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.random import Generator

from rlf.reports.paired import ALPHA, Evidence, flips_evidence, judge, paired_evidence, seeds_evidence
from rlf.reports.statistics import Interval

SIZES = (16, 32, 64, 128, 256, 512)
RATES = ((0.95, 0.97), (0.97, 0.90), (0.95, 0.95), (0.5, 0.5), (0.5, 0.6), (0.7, 0.8), (0.2, 0.8))
CORRELATIONS = (0.0, 0.3, 0.6)
PAIRED_FACTOR = 10
"""Simulations of counted flips for each other one: a count is looked at once, however often it is drawn."""
FEW_FLIPS = 8
"""Expected flips below which no interval can keep to its level: the few counts that occur carry most of the chance."""
LEAST, MOST = 0.94, 0.965


@dataclass(frozen=True, slots=True)
class Coverage:
    """One setting's result."""

    setting: str
    num_flips: float
    """Expected; of seeds and graded outcomes infinite."""
    score: float
    printed: float
    false_claims: float | None
    """None where the arms differ."""

    def verdict(self) -> str:
        """How the score interval keeps its level."""
        if LEAST <= self.score <= MOST:
            return "ok"
        if self.score > MOST:
            return "above: few flips" if self.num_flips < FEW_FLIPS else "above"
        return "below"


def cells(left: float, right: float, correlation: float) -> tuple[float, float]:
    """Shares of gained and lost questions for two success rates and the correlation of the outcomes."""
    both = left * right + correlation * (left * (1 - left) * right * (1 - right)) ** 0.5
    both = min(both, left, right)
    return right - both, left - both


def flips(num: int, gained: float, lost: float, draws: int, random: Generator, name: str) -> Coverage:
    """Paired outcomes of 0 and 1."""
    drawn = random.multinomial(num, [gained, lost, max(0.0, 1 - gained - lost)], size=draws)
    counts, times = np.unique(drawn[:, :2], axis=0, return_counts=True)
    found = [(flips_evidence(int(g), int(b), num), int(n)) for (g, b), n in zip(counts, times, strict=True)]
    return coverage(name, num * (gained + lost), gained - lost, found)


def coverage(name: str, num_flips: float, truth: float, found: list[tuple[Evidence, int]]) -> Coverage:
    """Shares of the intervals that hold the truth, each counted as often as it was drawn."""
    total = sum(times for _, times in found)
    judged = [(one, judge([one])[0], times) for one, times in found]
    score = sum(times * _holds(one.interval_at(1 - ALPHA), truth) for one, _, times in judged)
    printed = sum(times * (row is not None and _holds(row.interval, truth)) for _, row, times in judged)
    claimed = sum(times * (row is not None and row.shown) for _, row, times in judged)
    same = abs(truth) < 1e-12
    return Coverage(name, num_flips, score / total, printed / total, claimed / total if same else None)


def _holds(interval: Interval, truth: float) -> bool:
    return interval.low - 1e-9 <= truth <= interval.high + 1e-9


def paired_settings(draws: int, random: Generator) -> Iterator[Coverage]:
    """Every size, rate and correlation; then pairs that all flip, and none that does."""
    for num in SIZES:
        for left, right in RATES:
            for correlation in CORRELATIONS:
                gained, lost = cells(left, right, correlation)
                name = f"n={num:<4} {left:.2f} to {right:.2f}, correlation {correlation:.1f}"
                yield flips(num, gained, lost, PAIRED_FACTOR * draws, random, name)
        yield flips(num, 1.0, 0.0, draws, random, f"n={num:<4} all flip")
        yield flips(num, 0.0, 0.0, draws, random, f"n={num:<4} none flips")


def graded_settings(draws: int, random: Generator) -> Iterator[Coverage]:
    """Mean rewards from 0 to 1: of samples of a question, or scored in degrees."""
    for num in SIZES[:-1]:
        for name, truth, draw in _graded(num, random):
            found = []
            for _ in range(draws):
                left, right = (dict(enumerate(map(float, side))) for side in draw())
                one = paired_evidence(_named(left), _named(right), binary=False)
                assert one is not None
                found.append((one, 1))
            yield coverage(f"n={num:<4} {name}", float("inf"), truth, found)


def _named(side: dict[int, float]) -> dict[str, float]:
    return {str(key): value for key, value in side.items()}


Sides = Callable[[], tuple[np.ndarray, np.ndarray]]


def _graded(num: int, random: Generator) -> Iterator[tuple[str, float, Sides]]:
    def samples(left: float, right: float) -> Sides:
        return lambda: (random.binomial(4, left, num) / 4, random.binomial(4, right, num) / 4)

    def degrees(shift: float) -> Sides:
        def draw() -> tuple[np.ndarray, np.ndarray]:
            base = random.beta(2, 2, num) * 0.6
            return base + random.uniform(0, 0.2, num), base + shift + random.uniform(0, 0.2, num)

        return draw

    yield "4 samples each, 0.50 to 0.50", 0.0, samples(0.5, 0.5)
    yield "4 samples each, 0.80 to 0.90", 0.1, samples(0.8, 0.9)
    yield "4 samples each, 0.97 to 0.97", 0.0, samples(0.97, 0.97)
    yield "degrees, the same", 0.0, degrees(0.0)
    yield "degrees, 0.05 apart", 0.05, degrees(0.05)


def seed_settings(draws: int, random: Generator) -> Iterator[Coverage]:
    """Runs of several seeds, their success normal around the arm's own."""
    for num_left, num_right in ((2, 2), (3, 3), (5, 5), (2, 5), (8, 8)):
        for ratio in (1.0, 4.0):
            found = []
            for _ in range(draws):
                left, right = random.normal(0.5, 0.02, num_left), random.normal(0.5, 0.02 * ratio, num_right)
                one = seeds_evidence(left.tolist(), right.tolist())
                assert one is not None
                found.append((one, 1))
            yield coverage(f"{num_left} and {num_right} seeds, spreads 1 to {ratio:g}", float("inf"), 0.0, found)


def family_errors(draws: int, random: Generator) -> Iterator[tuple[str, float]]:
    """Share of the reports on equal arms that call any of them better or worse than the first."""
    for num_arms in (2, 5, 10):
        for num in (16, 64, 256):
            for rate in (0.5, 0.9, 0.96):
                wrong = sum(_claims(num_arms, num, rate, random) for _ in range(draws))
                yield f"{num_arms} equal arms, n={num}, success {rate:g}", wrong / draws


def _claims(num_arms: int, num: int, rate: float, random: Generator) -> bool:
    """Whether a report on arms that share how hard each question is makes any claim."""
    hardness = np.clip(random.beta(20 * rate, 20 * (1 - rate), num), 0, 1)
    outcomes = random.random((num_arms, num)) < hardness
    first = outcomes[0]
    arms = [flips_evidence(int(np.sum(other & ~first)), int(np.sum(first & ~other)), num) for other in outcomes[1:]]
    return any(found is not None and found.shown for found in judge(arms))


def main() -> int:
    """Prints every setting, then those out of bounds. Exit code 1 where a claim is false more often than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    draws = parser.parse_args().simulations
    random = np.random.default_rng(0)
    found = []
    for one in chain(paired_settings(draws, random), graded_settings(draws, random), seed_settings(draws, random)):
        found.append(one)
        claims = "" if one.false_claims is None else f"  false claims {one.false_claims:.4f}"
        flipped = "" if one.num_flips == float("inf") else f"  flips {one.num_flips:6.1f}"
        print(
            f"{one.setting:48}{flipped}  score {one.score:.4f}  printed {one.printed:.4f}{claims}  {one.verdict()}",
            flush=True,
        )
    errors = []
    for name, share in family_errors(draws, random):
        errors.append((name, share))
        print(f"{name:48}  false reports {share:.4f}", flush=True)
    allowed = ALPHA + 2.6 * (ALPHA * (1 - ALPHA) / draws) ** 0.5
    wrong = [share for share in (*(one.false_claims for one in found), *(e for _, e in errors)) if share is not None]
    counted = [one.verdict() for one in found]
    print({verdict: counted.count(verdict) for verdict in dict.fromkeys(counted)}, "highest error", max(wrong))
    return int(max(wrong) > allowed)


if __name__ == "__main__":
    sys.exit(main())
