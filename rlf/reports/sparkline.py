"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, low: float | None = None, high: float | None = None) -> str:
    """One character per value; more values than `width` are averaged into `width` equal segments.

    Args:
        values: The curve; a value that is not finite leaves a gap.
        width: Most characters to use.
        low: Value of the lowest level; None takes the smallest value shown.
        high: Value of the highest level; None takes the largest value shown.
    """
    shown = _squeeze_values(values, width)
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return " " * len(shown)
    bottom = min(finite) if low is None else low
    top = max(finite) if high is None else high
    return "".join(_draw_level(value, bottom, top) for value in shown)


def _draw_level(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return " "
    # Halves, because the difference of two huge values may overflow.
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.0
    return _LEVELS[min(len(_LEVELS) - 1, max(0, int(share * len(_LEVELS))))]


def _squeeze_values(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [len(values) * i // width for i in range(width + 1)]
    return [_mean_of_finite(values[start:end]) for start, end in pairwise(edges)]


def _mean_of_finite(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan
