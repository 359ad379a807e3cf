"""Curves as geometry: lines, bands and ticks in the units of a drawing, which the template writes as SVG."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

from rlf.lineage.records import Evaluation, TrainingStep
from rlf.reports.graded import mean_interval
from rlf.reports.sheets import count, decimal, percent
from rlf.reports.success import interval_of
from rlf.types.events import INTERVAL_ENDS, is_gap

WIDTH, HEIGHT = 340, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 22, 10, 26
_NUM_TICKS = 4
_BAND_POINTS = 30
"""Of intervals that are drawn as one band; fewer are bars, as in chart.js of the page."""

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
    name: str = ""
    """The metric's; of an evaluation `held-out/` with its mode."""


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
    heights = [
        y for line in chart.lines for y in [*(y for _, y in line.points), *(y for _, *ends in line.band for y in ends)]
    ]
    low, high = (0.0, 1.0) if chart.share else (min(heights), max(heights))
    if high <= low:
        low, high = low - 0.5, high + 0.5
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


def _show_tick(value: float, *, share: bool) -> str:
    if share:
        return f"{100 * value:.0f} %"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e5 else count(value)
    return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.0e}"


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
    band = f"{_draw_path([*upper, *lower])}Z"
    if len(line.band) < _BAND_POINTS:  # nothing was measured between them: a band would say so
        ends = zip(upper, lower[::-1], strict=True)
        band = "".join(f"M{x - 1.5:.1f} {top}h3V{bottom}h-3Z" for (x, top), (_, bottom) in ends)
    return DrawnLine(line.name, line.colour, path, band, (across(last[0]), down(last[1])))


def _draw_path(places: Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if place else 'M'}{x} {y}" for place, (x, y) in enumerate(places))


# The curves of arms and of a single run, those that matter first, with their 95 % bands.

MAIN = {
    "reward/mean": "reward",
    "policy/entropy": "entropy, nats",
    "groups/dead_share": "dead groups",
    "tools/calls_per_trajectory": "tool calls a trajectory",
    "time/step_s": "seconds a step",
}
"""Metrics whose charts are always open, where a run has them."""
_SHARES = ("success", "groups/dead_share", "tools/wait_share")


@dataclass(frozen=True, slots=True)
class ArmCurve:
    """The runs of one arm, or a single run."""

    name: str
    """What its curves are called: a letter, or the run's mode."""
    steps: Sequence[Sequence[TrainingStep]]
    """By run."""
    evaluations: Sequence[Sequence[Evaluation]]
    """By run, every mode."""
    max_points: int = 200
    """Of each curve; a longer one is thinned evenly."""


def main_curves(courses: Sequence[ArmCurve]) -> list[Chart]:
    """Held-out success by mode, then the metrics of training that matter."""
    modes = dict.fromkeys(e.mode for course in courses for run in course.evaluations for e in run)
    charts = [_chart_evaluations(courses, mode) for mode in sorted(modes, key=lambda mode: (mode != "sampled", mode))]
    charts += [_chart_training(courses, name, title) for name, title in MAIN.items()]
    for name in filter(is_gap, _names(courses)):
        _, hidden, trained = name.split("/")
        charts.append(_chart_training(courses, name, f"share of what {trained} pays that hidden {hidden} refuses"))
    return [chart for chart in charts if chart.lines]


def further_curves(courses: Sequence[ArmCurve]) -> list[Chart]:
    """Every other metric of training, by name."""
    names = [name for name in _names(courses) if name not in MAIN and not name.startswith("gap/")]
    charts = (_chart_training(courses, name, name) for name in names)
    return [chart for chart in charts if chart.lines]


def _names(courses: Sequence[ArmCurve]) -> list[str]:
    """The metrics of training, sorted."""
    return sorted({name for course in courses for run in course.steps for step in run for name in step.metrics})


def _chart_evaluations(courses: Sequence[ArmCurve], mode: str) -> Chart:
    def found(run: Sequence[Evaluation]) -> dict[int, Evaluation]:
        return {e.step: e for e in run if e.mode == mode and "success" in e.metrics}

    lines: list[Line] = []
    for place, course in enumerate(courses):
        runs = [found(run) for run in course.evaluations]
        values = [{step: e.metrics["success"] for step, e in run.items()} for run in runs]
        bands = {step: ends for step, e in runs[0].items() if (ends := interval_of(e.metrics)) is not None}
        lines += _mean_lines(course, place, values, bands if len(runs) == 1 else None)
    return Chart(f"held-out success, {mode}", tuple(lines), share=True, name=f"held-out/{mode}")


def _chart_training(courses: Sequence[ArmCurve], name: str, title: str) -> Chart:
    lines: list[Line] = []
    for place, course in enumerate(courses):
        values = [{s.step: s.metrics[name] for s in run if name in s.metrics} for run in course.steps]
        bands = _bands_over_steps(name, course.steps[0]) if is_gap(name) and len(course.steps) == 1 else None
        lines += _mean_lines(course, place, values, bands)
    return Chart(title, tuple(lines), share=name in _SHARES or is_gap(name), name=name)


def _bands_over_steps(name: str, run: Sequence[TrainingStep]) -> dict[int, tuple[float, float]]:
    ends = [f"{name}/{end}" for end in INTERVAL_ENDS]
    found = {step.step: [step.metrics[end] for end in ends if end in step.metrics] for step in run}
    return {step: (values[0], values[1]) for step, values in found.items() if len(values) == 2}


def _mean_lines(
    course: ArmCurve, colour: int, runs: Sequence[Mapping[int, float]], bands: Mapping[int, tuple[float, float]] | None
) -> Iterator[Line]:
    """The mean over the runs at the steps that all of them have; nothing where there is none."""
    shared = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    values = {step: [run[step] for run in runs] for step in shared}
    steps = [step for step, found in values.items() if all(map(math.isfinite, found))]
    if not steps:
        return
    steps = [*steps[: -1 : math.ceil(len(steps) / course.max_points)], steps[-1]]
    known = {step: mean_interval(values[step]) for step in steps} if bands is None else bands
    ends = [(step, interval) for step in steps if (interval := known.get(step)) is not None]
    yield Line(
        course.name,
        colour,
        tuple((step, fmean(values[step])) for step in steps),
        tuple((step, low, high) for step, (low, high) in ends),
    )


# Charts as one image that stands by itself: SVG without fonts, scripts or anything to load.

_TITLE = 24
"""Height of a chart's title."""
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")


def charts_svg(charts: Sequence[Drawn]) -> str:
    """The charts side by side, on white."""
    width, height = WIDTH * len(charts), HEIGHT + _TITLE
    words = escape("; ".join(f"{chart.title}: {chart.summary}" for chart in charts))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="10" role="img">',
        f"<title>{words}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(part for place, chart in enumerate(charts) for part in _draw_chart(chart, place * WIDTH)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _draw_chart(chart: Drawn, left: int) -> Iterator[str]:
    yield f'<g transform="translate({left} {_TITLE})">'
    yield f'<text x="{WIDTH / 2}" y="-8" text-anchor="middle" font-size="12">{escape(chart.title)}</text>'
    for y, text in chart.y_ticks:
        yield f'<path d="M48 {y}H{WIDTH - 22}" stroke="#ddd"/>'
        yield f'<text x="44" y="{y + 3}" text-anchor="end" fill="#555">{escape(text)}</text>'
    for x, text in chart.x_ticks:
        yield f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle" fill="#555">{escape(text)}</text>'
    for line in chart.lines:
        colour = _COLOURS[line.colour % len(_COLOURS)]
        if line.band:
            yield f'<path d="{line.band}" fill="{colour}" fill-opacity="0.3"/>'
        yield f'<path d="{line.path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        x, y = line.end
        yield f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>'
        yield f'<text x="{x + 5}" y="{y + 4}" fill="{colour}">{escape(line.name)}</text>' if line.name else ""
    yield "</g>"
