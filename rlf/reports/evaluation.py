"""How an evaluation's flat metrics are read: its interval and its kinds of question."""

from __future__ import annotations

from collections.abc import Mapping

from rlf.reports.quantities import percent, percent_range
from rlf.reports.statistics import Interval

_RESERVED = ("low", "high")


def interval_of(metrics: Mapping[str, float]) -> Interval | None:
    """The 95 % interval of `success`."""
    low, high = metrics.get("success/low"), metrics.get("success/high")
    return None if low is None or high is None else Interval(low, high)


def kinds_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """Success by kind of question."""
    rates = {name.removeprefix("success/"): rate for name, rate in metrics.items() if name.startswith("success/")}
    return {kind: rate for kind, rate in rates.items() if kind not in _RESERVED}


def success_words(metrics: Mapping[str, float]) -> str:
    """`61.0 % (54.9–66.8 %)`."""
    interval = interval_of(metrics)
    return percent(metrics.get("success")) + ("" if interval is None else f" ({percent_range(*interval)})")
