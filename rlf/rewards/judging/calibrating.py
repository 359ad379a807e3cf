"""A judge's verdicts on items that people have labelled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from rlf.rewards.judging.labels import Labelled
from rlf.rewards.judging.scorer import Comparison, Judgement, JudgeScorer
from rlf.rewards.judging.settings import Compare
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.rewards.term import Scoring


@dataclass(frozen=True, slots=True)
class Judged:
    """One item with both verdicts."""

    item: Labelled
    judgement: Judgement
    elapsed_s: float
    orders: tuple[float, float] | None = None
    """Of a pair: value of the answer at first place, straight and swapped."""


async def judge_all(scorer: JudgeScorer, term: JudgeTerm, items: Sequence[Labelled]) -> list[Judged]:
    """Judges as many at once as the endpoints take, so that no deadline passes in a queue; groups stay whole."""
    room = sum(endpoint.max_concurrency for endpoint in term.endpoints) or 16
    permits = asyncio.Semaphore(len(items) if term.compares_groups else room)
    sizes = Counter(item.trajectory.task.id for item in items)

    async def judge(item: Labelled) -> Judged:
        async with permits:
            started = perf_counter()
            orders: tuple[float, float] | None = None
            if term.compares_groups:
                verdict = await scorer.score(item.trajectory, Scoring(1, {}, sizes[item.trajectory.task.id]))
                result = Judgement.of(verdict)
            elif term.compare is Compare.PAIRWISE:
                both = await scorer.compare_with_gold(item.trajectory)
                result, orders = (
                    (both.judgement, _values_by_order(both)) if isinstance(both, Comparison) else (both, None)
                )
            else:
                result = await scorer.judge_alone(item.trajectory)
            return Judged(item, result, perf_counter() - started, orders)

    return list(await asyncio.gather(*map(judge, items)))


def _values_by_order(both: Comparison) -> tuple[float, float] | None:
    straight, swapped = both.straight.value, both.swapped.value
    return None if straight is None or swapped is None else (straight, swapped)
