"""The curves of arms and of a single run, those that matter first, with their 95 % bands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rlf.lineage.records import Evaluation, Step
from rlf.reports.evaluation import interval_of
from rlf.reports.pages.chart import Chart, Drawn, Line, draw
from rlf.reports.statistics import mean_interval

_MAIN = {
    "reward/mean": "reward",
    "policy/entropy": "entropy, nats",
    "groups/dead_share": "dead groups",
    "tools/calls_per_trajectory": "tool calls a trajectory",
    "time/step_s": "seconds a step",
}
"""Metrics whose charts are always open, where a run has them."""
_SHARES = ("success", "groups/dead_share", "tools/wait_share")
_MAX_POINTS = 200
"""Of a curve; a longer one is thinned evenly."""


@dataclass(frozen=True, slots=True)
class Course:
    """The runs of one arm, or a single run."""

    name: str
    """What its curves are called: a letter, or the run's mode."""
    steps: Sequence[Sequence[Step]]
    """By run."""
    evaluations: Sequence[Sequence[Evaluation]]
    """By run, every mode."""


def main_curves(courses: Sequence[Course]) -> list[Chart]:
    """Held-out success by mode, then the metrics of training that matter."""
    modes = dict.fromkeys(e.mode for course in courses for run in course.evaluations for e in run)
    charts = [_chart_evaluations(courses, mode) for mode in sorted(modes, key=lambda mode: (mode != "sampled", mode))]
    charts += [_chart_training(courses, name, title) for name, title in _MAIN.items()]
    return [chart for chart in charts if chart.lines]


def further_curves(courses: Sequence[Course]) -> list[Chart]:
    """Every other metric of training, by name."""
    names = {name for course in courses for run in course.steps for step in run for name in step.metrics}
    charts = (_chart_training(courses, name, name) for name in sorted(names - _MAIN.keys()))
    return [chart for chart in charts if chart.lines]


def main_charts(courses: Sequence[Course]) -> list[Drawn]:
    """The curves that are always open, drawn."""
    return [draw(chart) for chart in main_curves(courses)]


def further_charts(courses: Sequence[Course]) -> list[Drawn]:
    """The other curves, drawn."""
    return [draw(chart) for chart in further_curves(courses)]


def _chart_evaluations(courses: Sequence[Course], mode: str) -> Chart:
    def found(run: Sequence[Evaluation]) -> dict[int, Evaluation]:
        return {e.step: e for e in run if e.mode == mode and "success" in e.metrics}

    lines: list[Line] = []
    for place, course in enumerate(courses):
        runs = [found(run) for run in course.evaluations]
        values = [{step: e.metrics["success"] for step, e in run.items()} for run in runs]
        lines += _mean_lines(course.name, place, values, _bands_over_questions(runs[0]) if len(runs) == 1 else None)
    return Chart(f"held-out success, {mode}", tuple(lines), share=True)


def _bands_over_questions(run: Mapping[int, Evaluation]) -> dict[int, tuple[float, float]]:
    return {step: interval for step, e in run.items() if (interval := interval_of(e.metrics)) is not None}


def _chart_training(courses: Sequence[Course], name: str, title: str) -> Chart:
    lines: list[Line] = []
    for place, course in enumerate(courses):
        values = [{s.step: s.metrics[name] for s in run if name in s.metrics} for run in course.steps]
        lines += _mean_lines(course.name, place, values, None)
    return Chart(title, tuple(lines), share=name in _SHARES)


def _mean_lines(
    name: str,
    colour: int,
    runs: Sequence[Mapping[int, float]],
    bands: Mapping[int, tuple[float, float]] | None,
) -> Iterator[Line]:
    """The mean over the runs at the steps that all of them have; nothing where there is none."""
    shared = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    values = {step: [run[step] for run in runs] for step in shared}
    steps = _thin_steps([step for step, found in values.items() if all(map(math.isfinite, found))])
    if not steps:
        return
    known = {step: mean_interval(values[step]) for step in steps} if bands is None else bands
    ends = [(step, interval) for step in steps if (interval := known.get(step)) is not None]
    yield Line(
        name,
        colour,
        tuple((step, fmean(values[step])) for step in steps),
        tuple((step, low, high) for step, (low, high) in ends),
    )


def _thin_steps(steps: list[int]) -> list[int]:
    every = math.ceil(len(steps) / _MAX_POINTS)
    return steps if every <= 1 else [*steps[:-1:every], steps[-1]]
