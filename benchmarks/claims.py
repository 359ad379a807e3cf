"""Coverage of the intervals and the share of false claims of `rlf runs compare`, by simulation.

    python benchmarks/claims.py [--simulations 2000] [--only clusters]

Each setting draws what runs answer on the same questions, and asks `rlf.reports` what the reports print: an interval
that holds the true difference is covered; a claim where there is no difference is false. `score` is the interval
alone, `printed` the one that the reports show, which also holds 0 where the exact test does not reject: it covers more
at a difference of 0, by what the exact test of few flips leaves of its 5 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain

import numpy as np
from numpy.random import Generator

from rlf.apps.compare.outcomes import find_evidence
from rlf.reports.paired import ALPHA, Evidence, flips_evidence, judge, paired_evidence
from rlf.reports.statistics import Interval, find_spread, wilson_interval

SIZES = (8, 16, 32, 64, 128, 256, 512)
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
    """Expected; of seeds and graded outcomes infinite. Those of clusters count by how alike these are."""
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
    scores = [one.interval_at(1 - ALPHA) for one, _ in found]
    judged = [
        (judge([replace(one, interval_at=lambda _, interval=interval: interval)])[0], times)
        for (one, times), interval in zip(found, scores, strict=True)
    ]
    score = sum(times * _holds(interval, truth) for (_, times), interval in zip(found, scores, strict=True))
    printed = sum(times * (row is not None and _holds(row.interval, truth)) for row, times in judged)
    claimed = sum(times * (row is not None and row.shown) for row, times in judged)
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


CLUSTERS = (5, 8, 16, 64)
ALIKE = (0.0, 0.2, 0.6)
"""Correlation of the answers within a cluster."""
NUM_CLUSTERED = 128


def cluster_settings(draws: int, random: Generator) -> Iterator[Coverage]:
    """Questions of documents, worlds or templates, whose answers are alike; of equal sizes and of unequal ones."""
    for num_clusters in CLUSTERS:
        for shape in ("equal", "unequal"):
            sizes = _sizes(num_clusters, shape)
            named = np.repeat(np.arange(num_clusters), sizes)
            clusters = {f"{task:04d}": str(name) for task, name in enumerate(named)}
            for alike in ALIKE:
                for left, right in ((0.5, 0.5), (0.9, 0.9), (0.97, 0.97), (0.5, 0.65)):
                    sides = [_clustered(draws, rate, alike, named, random) for rate in (left, right)]
                    found = []
                    for one, other in zip(*sides, strict=True):
                        pair = paired_evidence(_tasks(one), _tasks(other), binary=True, cluster_by_task=clusters)
                        assert pair is not None
                        found.append((pair, 1))
                    name = f"{num_clusters} {shape} clusters, alike {alike:.1f}, {left:.2f} to {right:.2f}"
                    flipped = float(np.mean(np.sum(sides[0] != sides[1], axis=1)))
                    counted = flipped / (1 + (float(np.sum(sizes**2)) / len(named) - 1) * alike)
                    yield coverage(name, counted, right - left, found)


def _sizes(num_clusters: int, shape: str) -> np.ndarray:
    """Sizes of clusters that together have about as many questions as there are; unequal ones up to ten times."""
    weights = np.ones(num_clusters) if shape == "equal" else 10 ** (np.arange(num_clusters) / (num_clusters - 1))
    return np.maximum(1, np.round(weights / weights.sum() * NUM_CLUSTERED)).astype(int)


def _clustered(draws: int, rate: float, alike: float, named: np.ndarray, random: Generator) -> np.ndarray:
    """Answers by draw and question; rates of clusters are of a beta distribution with that correlation within."""
    size = (draws, named.max() + 1)
    scale = 0.0 if alike == 0 else (1 - alike) / alike
    rates = np.full(size, rate) if alike == 0 else random.beta(rate * scale, (1 - rate) * scale, size)
    return (random.random((draws, len(named))) < rates[:, named]).astype(float)


def _tasks(values: np.ndarray) -> dict[str, float]:
    return {f"{task:04d}": value for task, value in enumerate(values.tolist())}


def rate_settings(draws: int, random: Generator) -> Iterator[Coverage]:
    """The interval of one evaluation's success, over clusters; there is no claim in it."""
    for num_clusters in CLUSTERS:
        for shape in ("equal", "unequal"):
            named = np.repeat(np.arange(num_clusters), _sizes(num_clusters, shape))
            clusters = {f"{task:04d}": str(name) for task, name in enumerate(named)}
            for alike in ALIKE:
                for rate in (0.5, 0.9):
                    held = 0
                    for values in _clustered(draws, rate, alike, named, random):
                        spread = find_spread(_tasks(values), clusters, are_shares=True)
                        held += _holds(wilson_interval(values.sum(), len(values), spread=spread), rate)
                    share = held / draws
                    name = f"success {rate:.1f}, {num_clusters} {shape} clusters, alike {alike:.1f}"
                    alone = 1 + (float(np.sum(np.bincount(named) ** 2)) / len(named) - 1) * alike
                    yield Coverage(name, len(named) * min(rate, 1 - rate) / alone, share, share, None)


SHAPES = ((2, 2, 64), (2, 5, 64), (3, 3, 16), (3, 3, 200), (5, 5, 128))
"""Runs of either side, and questions."""
VARIED = {"neither": (0.0, 0.0), "seeds": (0.25, 0.0), "questions": (0.0, 1.0), "both": (0.25, 0.6)}
"""Standard deviations, on the scale of a logit: between the seeds of an arm, and of an arm's questions."""


class Lost(StrEnum):
    """Answers of the second arm that an outage took."""

    NONE = "nothing missing"
    RANDOM = "missing at random"
    HARD = "missing on hard ones"


def seed_settings(draws: int, random: Generator) -> Iterator[Coverage]:
    """Runs of several seeds on the same questions: what varies between either, and what an outage took."""
    for num_left, num_right, num in SHAPES:
        for varied, (of_seeds, of_questions) in VARIED.items():
            for lost in Lost if (num_left, num) in ((3, 200), (2, 64)) else (Lost.NONE,):
                for base in (0.0, 3.0) if lost is Lost.NONE else (0.0,):
                    found = []
                    for _ in range(draws):
                        hard = random.normal(base, 1.5, num)
                        sides = [_crossed(hard, runs, of_seeds, of_questions, random) for runs in (num_left, num_right)]
                        missing = _missing(hard, lost, num_right, random)
                        left = [_tasks(run) for run in sides[0]]
                        right = [
                            {task: value for place, (task, value) in enumerate(_tasks(run).items()) if not gone[place]}
                            for run, gone in zip(sides[1], missing, strict=True)
                        ]
                        one, _ = find_evidence((left, right), {}, binary=False)
                        found += [] if one is None else [(one, 1)]
                    rate = "" if base == 0 else ", near 0.95"
                    name = f"{num_left} and {num_right} seeds, n={num}, {varied} vary{rate}, {lost}"
                    yield coverage(name, float("inf"), 0.0, found)


def _crossed(hard: np.ndarray, runs: int, of_seeds: float, of_questions: float, random: Generator) -> np.ndarray:
    """Answers by run and question, right with the logistic chance of all that makes one easy."""
    easy = hard + random.normal(0, of_questions, len(hard)) + random.normal(0, of_seeds, (runs, 1))
    return (random.random((runs, len(hard))) < 1 / (1 + np.exp(-easy))).astype(float)


def _missing(hard: np.ndarray, lost: Lost, runs: int, random: Generator) -> np.ndarray:
    share = 0.0 if lost is Lost.NONE else 0.3
    chance = np.where(hard < np.median(hard), 2 * share, 0.0) if lost is Lost.HARD else np.full(len(hard), share)
    return np.repeat(random.random((1, len(hard))) < chance, runs, axis=0)


def looks(draws: int, random: Generator) -> Iterator[tuple[str, float]]:
    """Share of the runs of no effect that a look at one of their evaluations finds better or worse."""
    for num in (64, 256):
        for num_looks in (3, 10):
            drawn = random.multinomial(num, [0.1, 0.1, 0.8], size=(draws, num_looks))
            ended = last = 0
            for run in drawn:
                found = [flips_evidence(int(gained), int(lost), num) for gained, lost, _ in run]
                ended += any(one.after_looks(at).p <= ALPHA for at, one in enumerate(found, 1))
                last += found[-1].p <= ALPHA
            yield f"{num_looks} looks, n={num}: ended at the best one", ended / draws
            yield f"{num_looks} looks, n={num}: finished, and running before", last / draws


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


SETTINGS: dict[str, Callable[[int, Generator], Iterator[Coverage]]] = {
    "flips": paired_settings,
    "graded": graded_settings,
    "clusters": cluster_settings,
    "rates": rate_settings,
    "seeds": seed_settings,
}


def main() -> int:
    """Prints every setting, then those out of bounds. Exit code 1 where a claim is false more often than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--only", choices=(*SETTINGS, "reports"), help="One kind of settings.")
    asked = parser.parse_args()
    draws, random = asked.simulations, np.random.default_rng(0)
    found = []
    kinds = [make for name, make in SETTINGS.items() if asked.only in (None, name)]
    for one in chain.from_iterable(make(draws, random) for make in kinds):
        found.append(one)
        claims = "" if one.false_claims is None else f"  false claims {one.false_claims:.4f}"
        flipped = "" if one.num_flips == float("inf") else f"  flips {one.num_flips:6.1f}"
        print(
            f"{one.setting:60}{flipped}  score {one.score:.4f}  printed {one.printed:.4f}{claims}  {one.verdict()}",
            flush=True,
        )
    errors = []
    families = chain(family_errors(draws, random), looks(draws, random)) if asked.only in (None, "reports") else ()
    for name, share in families:
        errors.append((name, share))
        print(f"{name:60}  false reports {share:.4f}", flush=True)
    allowed = ALPHA + 2.6 * (ALPHA * (1 - ALPHA) / draws) ** 0.5
    wrong = [share for share in (*(one.false_claims for one in found), *(e for _, e in errors)) if share is not None]
    counted = [one.verdict() for one in found]
    print(
        {verdict: counted.count(verdict) for verdict in dict.fromkeys(counted)},
        "highest error",
        max(wrong, default=0.0),
    )
    return int(max(wrong, default=0.0) > allowed)


if __name__ == "__main__":
    sys.exit(main())
