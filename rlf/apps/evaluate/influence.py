"""Which kinds of training tasks moved which kinds of held-out questions, as far as the records of a run can say.

A kind that has nearly all of the advantages moved what moved, by elimination. Where several have some, a kind is named
only if held-out success rose when it was trained on and not when others were. Pure.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import StatisticsError, correlation, fmean

from rlf.lineage.records import StoredTrajectory
from rlf.reports.sheets import percent

_LEAST, _LEAST_Z = 0.1, 2.6
"""Change of held-out success, and its standard errors, from which it has moved."""
_ALONE = 0.9
"""Share of all advantages that leaves nothing for other kinds."""
_INTERVALS, _SHUFFLES = 6, 2000
"""Intervals between evaluations that a correlation needs, and shuffles that its chance is counted by."""


@dataclass(frozen=True, slots=True)
class Influence:
    """What moved a kind of held-out questions."""

    held_out: str
    before: float
    after: float
    trained: str | None
    """The kind of training tasks that moved it; None: cannot say."""
    seen: str
    refuted_by: str


def find_influences(trained: Sequence[StoredTrajectory], evaluated: Sequence[StoredTrajectory]) -> list[Influence]:
    """One for each kind of held-out questions that moved by more than chance explains."""
    curves: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in evaluated:
        if item.summary.reward is not None and item.summary.success is not None:
            curves[item.summary.kind or "all"][item.summary.step].append(item.summary.success)
    pulls = _pulls(trained)
    return [one for kind, curve in sorted(curves.items()) if pulls for one in _explain(kind, curve, pulls)]


def _pulls(trained: Sequence[StoredTrajectory]) -> dict[str, dict[int, float]]:
    """The sum of all advantages' sizes by kind and step; without advantages, of rewards from their group's mean."""
    groups: dict[tuple[str, int, str], list[StoredTrajectory]] = defaultdict(list)
    for item in trained:
        if item.summary.reward is not None:
            groups[item.summary.kind or "all", item.summary.step, item.summary.task_id].append(item)
    found: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (kind, step, _), group in groups.items():
        mean = fmean(item.summary.reward or 0.0 for item in group)
        for item in group:
            own = item.summary.advantage
            found[kind][step] += abs((item.summary.reward or 0.0) - mean if own is None else own)
    return found


def _explain(kind: str, curve: dict[int, list[float]], pulls: dict[str, dict[int, float]]) -> Iterator[Influence]:
    steps = sorted(curve)
    before, after = (fmean(curve[step]) for step in (steps[0], steps[-1]))
    spread = sum(_variance(curve[step]) / len(curve[step]) for step in (steps[0], steps[-1]))
    if abs(after - before) < max(_LEAST, _LEAST_Z * math.sqrt(spread)):
        return
    by_kind = {
        name: [sum(value for step, value in each.items() if low < step <= high) for low, high in pairwise(steps)]
        for name, each in pulls.items()
    }
    total = sum(map(sum, by_kind.values()))
    first = max(by_kind, key=lambda name: sum(by_kind[name]))
    share = sum(by_kind[first]) / total if total else 0.0
    named, seen = None, f"{len(by_kind)} kinds were trained on in the same steps"
    if share >= _ALONE:
        named, seen = first, f"{percent(share)} of all advantages before it are of {first!r}"
    elif len(steps) > _INTERVALS:
        rises = [fmean(curve[high]) - fmean(curve[low]) for low, high in pairwise(steps)]
        chances = {name: _chance(each, rises) for name, each in by_kind.items()}
        likely = [name for name, chance in chances.items() if chance < 0.05 / len(chances)]
        if len(likely) == 1:
            named = likely[0]
            seen = f"over {len(rises)} intervals it moved when {named!r} was trained on (p {chances[named]:.3f})"
    refuted = "it moves alike in a run without these tasks" if named else "runs that leave out one kind each would say"
    yield Influence(kind, before, after, named, seen, refuted)


def _variance(values: Sequence[float]) -> float:
    likely = (sum(values) + 1) / (len(values) + 2)  # all alike is no proof that there is no spread
    return likely * (1 - likely)


def _chance(pull: Sequence[float], rises: Sequence[float]) -> float:
    """How often shuffled intervals go together as well; the steps of a run are few, so no formula is used."""
    try:
        own = correlation(pull, rises)
    except StatisticsError:  # one of them is constant
        return 1.0
    draw, order = random.Random(0), list(rises)
    hits = 0
    for _ in range(_SHUFFLES):
        draw.shuffle(order)
        hits += correlation(pull, order) >= own - 1e-9
    return (hits + 1) / (_SHUFFLES + 1)
