"""A judge held against people's labels."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter

from rlf.api.rewards.scoring import load_rewards, tell
from rlf.core.errors import RlfError
from rlf.reports.agreement import (
    Estimate,
    PositionBias,
    accuracy,
    kappa,
    length_bias,
    position_bias,
    self_preference,
    spearman,
)
from rlf.rewards.judging.labels import Labelled, read_labels
from rlf.rewards.judging.scorer import Comparison, JudgeScorer, Said
from rlf.rewards.judging.settings import Compare
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.rewards.term import RewardContext, Scoring
from rlf.tools import Executor


@dataclass(frozen=True, slots=True)
class Judged:
    """One item with both verdicts."""

    item: Labelled
    said: Said
    elapsed_s: float
    orders: tuple[float, float] | None = None
    """Of a pair: value of the answer at first place, straight and swapped."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the labels say of a judge."""

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


def judge_in(file: Path, name: str | None) -> tuple[JudgeTerm, int]:
    """The judge of a spec or reward file, and the seed. Raises RlfError where there is none, or several and no name."""
    (found,) = load_rewards([file])
    judges = {term.name: term for term in found.terms if isinstance(term, JudgeTerm)}
    if name is None and len(judges) == 1:
        return next(iter(judges.values())), found.seed
    if name not in judges:
        known = ", ".join(judges) or "none"
        wanted = "has several judges" if name is None and judges else f"has no judge{f' {name!r}' if name else ''}"
        raise RlfError(f"{file}: {wanted} (known: {known}). Name one by --term.")
    return judges[name], found.seed


async def calibrate(term: JudgeTerm, labels: Path, *, seed: int, threshold: float) -> Calibration:
    """Judges every item, nothing from the cache, and compares. Raises RlfError where nothing could be judged."""
    term = term.model_copy(update={"sentinels": None, "cache": None})
    items = read_labels(str(labels), term.judging)
    if not items:
        raise RlfError(f"{labels}: holds no item; expected one JSON object a line. Name another file.")
    async with Executor((), seed=seed) as tools, term.open(RewardContext(tools.for_rewards, seed, tell)) as scorer:
        assert isinstance(scorer, JudgeScorer), f"a judge opens {type(scorer).__name__}"
        judged = await _judge_all(scorer, term, items)
    scored = [each for each in judged if each.said.value is not None]
    if not scored:
        raise RlfError(f"none of {len(items)} items could be judged: {judged[0].said.reason}. Look at the judge.")
    return _compared(term, judged, scored, threshold)


async def _judge_all(scorer: JudgeScorer, term: JudgeTerm, items: Sequence[Labelled]) -> list[Judged]:
    """Not more at once than the endpoints take, so that nobody's time runs out in a queue; but groups are whole."""
    room = sum(endpoint.max_concurrency for endpoint in term.endpoints) or 16
    permits = asyncio.Semaphore(len(items) if term.compares_groups else room)
    sizes = Counter(item.trajectory.task.id for item in items)

    async def judge(item: Labelled) -> Judged:
        async with permits:
            started = perf_counter()
            orders: tuple[float, float] | None = None
            if term.compares_groups:
                verdict = await scorer.score(item.trajectory, Scoring(1, {}, sizes[item.trajectory.task.id]))
                said = Said.of(verdict)
            elif term.compare is Compare.PAIRWISE:
                both = await scorer.compare_with_gold(item.trajectory)
                said, orders = (both.said, _orders(both)) if isinstance(both, Comparison) else (both, None)
            else:
                said = await scorer.judge_alone(item.trajectory)
            return Judged(item, said, perf_counter() - started, orders)

    return list(await asyncio.gather(*map(judge, items)))


def _orders(both: Comparison) -> tuple[float, float] | None:
    straight, swapped = both.straight.value, both.swapped.value
    return None if straight is None or swapped is None else (straight, swapped)


def _compared(term: JudgeTerm, judged: Sequence[Judged], scored: Sequence[Judged], threshold: float) -> Calibration:
    values = [each.said.value or 0.0 for each in scored]
    labels = [each.item.label for each in scored]
    judged_as, labelled_as = ([_class(term, each, threshold) for each in side] for side in (values, labels))
    classes = list(zip(judged_as, labelled_as, strict=True))
    lengths = [len(each.item.trajectory.answer or "") for each in scored]
    residuals = {True: list[float](), False: list[float]()}
    for each, value, label in zip(scored, values, labels, strict=True):
        if each.item.author is not None:
            residuals[each.item.author in term.judges].append(value - label)
    return Calibration(
        term=term.name,
        num_items=len(judged),
        failures=[each.said.reason for each in judged if each.said.value is None],
        accuracy=Estimate(None, None) if term.compares_groups else accuracy(classes),
        kappa=Estimate(None, None) if term.compares_groups else kappa(classes),
        spearman=spearman(values, labels),
        length_bias=length_bias(values, lengths, labels),
        position_bias=position_bias([each.orders for each in scored if each.orders is not None]),
        self_preference=self_preference(residuals[True], residuals[False]),
        num_own=len(residuals[True]),
        cost_usd=fmean(each.said.usage.cost_usd for each in judged),
        num_tokens=fmean(each.said.usage.num_tokens for each in judged),
        elapsed_s=fmean(each.elapsed_s for each in judged),
    )


def _class(term: JudgeTerm, value: float, threshold: float) -> str:
    if term.compare is Compare.PAIRWISE:
        return "tie" if value == 0.5 else "first" if value > 0.5 else "second"
    return "good" if value >= threshold else "bad"
