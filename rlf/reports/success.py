"""What evaluations measured: success by task, with its interval, and how much of it is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from rlf.lineage.records import TrajectorySummary
from rlf.reports.sheets import rate
from rlf.reports.statistics import Interval
from rlf.types.events import INTERVAL_ENDS, kind_metric


def interval_of(metrics: Mapping[str, float]) -> Interval | None:
    """The 95 % interval of `success`."""
    low, high = metrics.get("success/low"), metrics.get("success/high")
    return None if low is None or high is None else Interval(low, high)


def kinds_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """Success by kind of question."""
    rates = {name.removeprefix("success/"): rate for name, rate in metrics.items() if name.startswith("success/")}
    apart = {kind_metric(kind).removeprefix("success/"): kind for kind in INTERVAL_ENDS}
    return {apart.get(name, name): rate for name, rate in rates.items() if name not in INTERVAL_ENDS}


def success_words(metrics: Mapping[str, float]) -> str:
    """`61.0 % (54.9–66.8 %)`."""
    return rate(metrics.get("success"), interval_of(metrics))


def first_samples(tries: Iterable[TrajectorySummary]) -> dict[str, TrajectorySummary]:
    """Each question's first sample that was scored: further ones are not independent of it."""
    return {item.task_id: item for item in tries if item.sample_index == 0 and _is_scored(item)}


def success_by_task(tries: Iterable[TrajectorySummary]) -> dict[str, float]:
    """Mean success of each question's samples, unscorable ones left out, as in `success`."""
    values: dict[str, list[float]] = {}
    for item in tries:
        if item.success is not None and _is_scored(item):
            values.setdefault(item.task_id, []).append(item.success)
    return {task: fmean(found) for task, found in values.items()}


def missing_by_kind(
    before: Sequence[TrajectorySummary], after: Sequence[TrajectorySummary]
) -> dict[str | None, tuple[int, int]]:
    """By kind, how many of all questions lack a value in one of two evaluations; empty where none does."""
    kinds = {item.task_id: item.kind for item in (*before, *after)}
    lost = kinds.keys() - (success_by_task(before).keys() & success_by_task(after).keys())
    num_lost, num_all = Counter(kinds[task] for task in lost), Counter(kinds.values())
    return {kind: (num_lost[kind], num_all[kind]) for kind in num_all} if lost else {}


def kind_words(num_by_kind: Mapping[str | None, tuple[int, int]]) -> str:
    """`: two_hop 88 of 640, one_hop 8 of 640`, the kinds that were hit; empty where all tasks are of one."""
    hit = sorted((item for item in num_by_kind.items() if item[1][0]), key=lambda item: -item[1][0])
    words = ", ".join(f"{kind} {lost:,} of {of:,}" for kind, (lost, of) in hit)
    return f": {words}" if len(num_by_kind) > 1 else ""


def is_same(before: Sequence[TrajectorySummary], after: Sequence[TrajectorySummary]) -> bool:
    """Whether every try of two evaluations ended word for word as its like."""
    one, other = (
        {(item.task_id, item.sample_index): (item.answer, item.success, item.num_tokens) for item in tries}
        for tries in (before, after)
    )
    return one == other


def _is_scored(item: TrajectorySummary) -> bool:
    return item.reward is not None and item.success is not None
