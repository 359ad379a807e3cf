"""Curves as geometry: lines, bands and ticks in the units of a drawing, which the template writes as SVG."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlf.reports.quantities import decimal, percent

WIDTH, HEIGHT = 340, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 22, 10, 26
_NUM_TICKS = 4

Place = Callable[[float], float]
"""Where a value lies in the drawing."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve."""

    name: str
    """What stands at its end and in the read-out."""
    colour: int
    """Place of its arm: colour and dash."""
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float, float], ...] = ()
    """x, low and high of its 95 % intervals."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves of one metric."""

    title: str
    lines: tuple[Line, ...]
    share: bool
    """Whether its values are shares, drawn from 0 to 1 and written in percent."""


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A curve as paths."""

    name: str
    colour: int
    path: str
    band: str
    """Empty without intervals."""
    end: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart ready for the template."""

    title: str
    lines: tuple[DrawnLine, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    values: str
    """JSON for the read-out: for each line its name and the place, step and value of each point."""
    summary: str
    """The chart in words, for those who do not see it."""


def draw(chart: Chart) -> Drawn:
    """A chart as geometry. The lines have points."""
    xs = [x for line in chart.lines for x, _ in line.points]
    heights = [y for line in chart.lines for y in _list_heights(line)]
    low, high = (0.0, 1.0) if chart.share else _widen_range(min(heights), max(heights))
    first, last = min(xs), max(xs)

    def across(x: float) -> float:
        share = (x - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def down(y: float) -> float:
        return round(HEIGHT - _BOTTOM - (y - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM), 1)

    words = percent if chart.share else decimal
    readout = [[line.name, [[across(x), x, words(y)] for x, y in line.points]] for line in chart.lines]
    return Drawn(
        title=chart.title,
        lines=tuple(_draw_line(line, across, down) for line in chart.lines),
        x_ticks=tuple((across(x), f"{x:g}") for x in ticks(first, last) if x == int(x)),
        y_ticks=tuple((down(y), _show_tick(y, share=chart.share)) for y in ticks(low, high)),
        values=json.dumps(readout),
        summary="; ".join(
            f"{line.name} {words(line.points[0][1])} at step {line.points[0][0]:g}, "
            f"{words(line.points[-1][1])} at step {line.points[-1][0]:g}"
            for line in chart.lines
        ),
    )


def _list_heights(line: Line) -> list[float]:
    return [*(y for _, y in line.points), *(y for _, *ends in line.band for y in ends)]


def _widen_range(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _show_tick(value: float, *, share: bool) -> str:
    if share:
        return f"{100 * value:.0f} %"
    return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.0e}"


def ticks(low: float, high: float) -> list[float]:
    """Round values between two ends: steps of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    rough = (high - low) / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round((first + place) * step, 12) for place in range(count + 1)]


def _draw_line(line: Line, across: Place, down: Place) -> DrawnLine:
    path = _draw_path([(across(x), down(y)) for x, y in line.points])
    upper = [(across(x), down(high)) for x, _, high in line.band]
    lower = [(across(x), down(low)) for x, low, _ in reversed(line.band)]
    last = line.points[-1]
    band = f"{_draw_path([*upper, *lower])}Z" if len(line.band) > 1 else ""
    return DrawnLine(line.name, line.colour, path, band, (across(last[0]), down(last[1])))


def _draw_path(places: Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if place else 'M'}{x} {y}" for place, (x, y) in enumerate(places))
