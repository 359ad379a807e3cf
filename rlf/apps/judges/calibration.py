"""A judge compared with people's labels."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import StatisticsError, correlation, fmean
from time import perf_counter

from rlf.apps.judges.drift import LabelledItem, cohen_kappa, read_labels
from rlf.apps.judges.judge import JudgeTerm
from rlf.apps.judges.scorer import JudgeScorer, PairComparison
from rlf.apps.judges.settings import Compare
from rlf.core.errors import RlfError
from rlf.reports.graded import welch_interval
from rlf.reports.statistics import Estimate, Interval, wilson_interval
from rlf.rewards.term import RewardContext, Scoring, Verdict
from rlf.runs.declared import load_rewards, tell
from rlf.tools import Executor
from rlf.types import ScoreUsage

__all__ = ["Calibration", "calibrate", "judge_in"]

# How far a judge agrees with people, and what it is partial to. Pure functions of numbers.

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


# A judge's verdicts on items that people have labelled.


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """One item with both verdicts."""

    item: LabelledItem
    judgement: Verdict
    elapsed_s: float
    orders: tuple[float, float] | None = None
    """Of a pair: value of the answer at first place, straight and swapped."""


async def judge_all(scorer: JudgeScorer, term: JudgeTerm, items: Sequence[LabelledItem]) -> list[JudgedItem]:
    """Judges as many at once as the endpoints take, so that no deadline passes in a queue; groups stay whole."""
    room = sum(endpoint.max_concurrency for endpoint in term.endpoints) or 16
    permits = asyncio.Semaphore(len(items) if term.compares_groups else room)
    sizes = Counter(item.trajectory.task.id for item in items)

    async def judge(item: LabelledItem) -> JudgedItem:
        async with permits:
            started = perf_counter()
            orders: tuple[float, float] | None = None
            if term.compares_groups:
                result = await scorer.score(item.trajectory, Scoring(1, {}, sizes[item.trajectory.task.id]))
            elif term.compare is Compare.PAIRWISE:
                both = await scorer.compare_with_gold(item.trajectory)
                result, orders = (
                    (both.judgement, _values_by_order(both)) if isinstance(both, PairComparison) else (both, None)
                )
            else:
                result = await scorer.judge_alone(item.trajectory)
            return JudgedItem(item, result, perf_counter() - started, orders)

    return list(await asyncio.gather(*map(judge, items)))


def _values_by_order(both: PairComparison) -> tuple[float, float] | None:
    straight, swapped = both.straight.value, both.swapped.value
    return None if straight is None or swapped is None else (straight, swapped)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Agreement and bias of a judge."""

    term: str
    num_items: int
    failures: Sequence[str]
    """Why items have no verdict; the numbers below are over the others."""
    accuracy: Estimate
    """Of verdicts on the same side of the threshold; of pairs, of the same winner. No number for groups."""
    kappa: Estimate
    spearman: float | None
    """Of values and labels."""
    length_bias: float | None
    position_bias: PositionBias | None
    """Of pairs."""
    self_preference: Estimate
    num_own: int
    """Items that the judge's model wrote."""
    cost_usd: float
    """Mean for one item."""
    num_tokens: float
    elapsed_s: float


def compare_with_labels(term: JudgeTerm, judged: Sequence[JudgedItem], threshold: float) -> Calibration:
    """Compares a judge's verdicts with labels; at least one item has a verdict."""
    scored = [each for each in judged if each.judgement.value is not None]
    usages = [each.judgement.usage or ScoreUsage() for each in judged]
    values = [each.judgement.value or 0.0 for each in scored]
    labels = [each.item.label for each in scored]
    judged_as, labelled_as = ([_class_of(term, each, threshold) for each in side] for side in (values, labels))
    classes = list(zip(judged_as, labelled_as, strict=True))
    lengths = [len(each.item.trajectory.answer or "") for each in scored]
    residuals = {True: list[float](), False: list[float]()}
    for each, value, label in zip(scored, values, labels, strict=True):
        if each.item.author is not None:
            residuals[each.item.author in term.judges].append(value - label)
    return Calibration(
        term=term.name,
        num_items=len(judged),
        failures=[each.judgement.reason for each in judged if each.judgement.value is None],
        accuracy=Estimate(None, None) if term.compares_groups else accuracy(classes),
        kappa=Estimate(None, None) if term.compares_groups else kappa(classes),
        spearman=spearman(values, labels),
        length_bias=length_bias(values, lengths, labels),
        position_bias=position_bias([each.orders for each in scored if each.orders is not None]),
        self_preference=self_preference(residuals[True], residuals[False]),
        num_own=len(residuals[True]),
        cost_usd=fmean(usage.cost_usd for usage in usages),
        num_tokens=fmean(usage.num_tokens for usage in usages),
        elapsed_s=fmean(each.elapsed_s for each in judged),
    )


def _class_of(term: JudgeTerm, value: float, threshold: float) -> str:
    if term.compare is Compare.PAIRWISE:
        return "tie" if value == 0.5 else "first" if value > 0.5 else "second"
    return "good" if value >= threshold else "bad"


# A judge compared with people's labels.


def judge_in(files: Sequence[Path], overrides: Sequence[str], name: str | None) -> tuple[JudgeTerm, int]:
    """The judge of a spec or reward file, and the seed. Raises RlfError where there is none, or several and no name."""
    terms = [(term, each.seed) for each in load_rewards(files, overrides) for term in each.terms]
    judges = {term.name: (term, seed) for term, seed in terms if isinstance(term, JudgeTerm)}
    if name is None and len(judges) == 1:
        return next(iter(judges.values()))
    if name not in judges:
        known = ", ".join(judges) or "none"
        wanted = "has several judges" if name is None and judges else f"has no judge{f' {name!r}' if name else ''}"
        raise RlfError(f"{files[0]}: {wanted} (known: {known}). Name one by --term.")
    return judges[name]


async def calibrate(term: JudgeTerm, labels: Path, *, seed: int, threshold: float) -> Calibration:
    """Judges every item, nothing from the cache, and compares. Raises RlfError where nothing could be judged."""
    term = term.model_copy(update={"sentinels": None, "cache": None})
    items = read_labels(str(labels), term.judging)
    if not items:
        raise RlfError(f"{labels}: holds no item; expected one JSON object a line. Name another file.")
    async with Executor((), seed=seed) as tools, term.open(RewardContext(tools.for_rewards, seed, tell)) as scorer:
        assert isinstance(scorer, JudgeScorer), f"a judge opens {type(scorer).__name__}"
        judged = await judge_all(scorer, term, items)
    if all(each.judgement.value is None for each in judged):
        raise RlfError(f"none of {len(items)} items could be judged: {judged[0].judgement.reason}. Check the judge.")
    return compare_with_labels(term, judged, threshold)
