"""How an evaluation is read: its flat metrics with their interval and kinds of question, and its tries by question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from rlf.lineage.records import TrajectorySummary
from rlf.reports.quantities import rate
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
    """Mean success of each question's samples, within 0 to 1 and unscorable ones left out, as in `success`."""
    values: dict[str, list[float]] = {}
    for item in tries:
        if item.success is not None and _is_scored(item):
            values.setdefault(item.task_id, []).append(min(1.0, max(0.0, item.success)))
    return {task: fmean(found) for task, found in values.items()}


def _is_scored(item: TrajectorySummary) -> bool:
    return item.reward is not None and item.success is not None
