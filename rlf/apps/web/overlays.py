"""Curves of several runs over each other: what distinguishes them, and when their steps were, by time and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean
from typing import Any

from rlf.apps.web.plan_values import PlanValues, parse_plans, varied_keys
from rlf.apps.web.run_views import run_title
from rlf.core.errors import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run, TrainingStep
from rlf.reports.pages.chart import MAIN, ArmCurve, Chart, further_curves, main_curves

MAX_RUNS, MAX_ARMS = 64, 16
_MAX_POINTS = 2000
"""Of the chart at full size."""
_HELD_OUT = "held-out/"
_MAX_KEYS = 3
"""Values that a run is named by."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of each chart: a run, or the runs of a group, of which it shows the mean."""

    name: str
    run_ids: tuple[str, ...]
    steps: tuple[int, ...]
    """That all of its runs have."""
    time: tuple[float, ...]
    """Seconds from the run's start to the end of each step; of several runs the mean."""
    tokens: tuple[float, ...]
    """Of all trajectories up to each step."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Charts of several arms."""

    arms: tuple[ChartLine, ...]
    names: tuple[str, ...]
    """Metrics to choose from."""
    keys: tuple[str, ...]
    """By which the runs can be grouped."""
    chart: Chart | None
    """At full size; None where no arm has the metric."""
    others: tuple[Chart, ...]
    """The metrics that matter, small."""


def read_overlay(reader: Reader, names: Sequence[str], metric: str, group: str) -> Overlay:
    """Reads the curves of runs.

    Args:
        metric: at full size; empty for the first one that matters.
        group: a key of the plans whose values are the arms, or `name`; empty: each run is one.

    Raises:
        RlfError: there are too many, or a run is not there.
    """
    runs = list({run.record.id: run for run in map(reader.get_run, names)}.values())
    if len(runs) > MAX_RUNS:
        raise RlfError(f"got {len(runs)} runs; curves of {MAX_RUNS} can be shown. Choose fewer.")
    plans = parse_plans(reader, [run.record.id for run in runs])
    varied, tags = varied_keys(plans), reader.tags()
    keys = tuple(sorted(varied, key=lambda key: (varied[key], key)))  # those with the fewest values first
    by_arm: dict[str, list[Run]] = {}
    for run in runs:
        by_arm.setdefault(_arm_name(run, plans, keys, group, tags.get(run.record.id, ())), []).append(run)
    if len(by_arm) > MAX_ARMS:
        raise RlfError(f"got {len(by_arm)} curves; {MAX_ARMS} can be distinguished. Choose fewer runs, or group them.")
    steps = {run.record.id: reader.steps(run.record.id) for run in runs}
    curves = [
        ArmCurve(name, [steps[run.record.id] for run in of], [reader.evaluations(run.record.id) for run in of])
        for name, of in by_arm.items()
    ]
    modes = {f"{_HELD_OUT}{one.mode}" for course in curves for run in course.evaluations for one in run}
    of_steps = {name for course in curves for run in course.steps for step in run for name in step.metrics}
    first = [*sorted(modes, reverse=True), *(name for name in ("success", *MAIN) if name in of_steps)]
    known = (*first, *sorted(of_steps - set(first)))
    wanted = metric if metric in known else next(iter(known), "")
    whole = _charts_of([replace(course, max_points=_MAX_POINTS) for course in curves], {wanted})
    mattering = {name for name in known if name in MAIN or name == "success" or name.startswith(_HELD_OUT)}
    arms = tuple(_read_arm(reader, name, of, steps) for name, of in by_arm.items())
    shown = tuple(_charts_of(curves, mattering - {wanted}))
    return Overlay(arms, known, ("name", *keys), whole[0] if whole else None, shown)


def _arm_name(run: Run, plans: Mapping[str, PlanValues], keys: Sequence[str], group: str, tags: Sequence[str]) -> str:
    name = run_title(run.record.name, tags)
    values: Mapping[str, Any] = plans[run.record.id].values if run.record.id in plans else {}
    if group:
        return name if group == "name" else f"{group}={values.get(group)}"
    telling = " ".join(f"{key.rpartition('.')[2]}={values.get(key)}" for key in keys[:_MAX_KEYS])
    return " ".join(filter(None, (name, telling[:60], run.record.id[-4:])))


def _charts_of(curves: Sequence[ArmCurve], wanted: set[str]) -> list[Chart]:
    def kept(step: TrainingStep) -> TrainingStep:
        return replace(step, metrics={name: value for name, value in step.metrics.items() if name in wanted})

    chosen = [
        replace(
            course,
            steps=[[kept(step) for step in run] for run in course.steps],
            evaluations=[[one for one in run if f"{_HELD_OUT}{one.mode}" in wanted] for run in course.evaluations],
        )
        for course in curves
    ]
    return [*main_curves(chosen), *further_curves(chosen)]


def _read_arm(reader: Reader, name: str, runs: Sequence[Run], steps: Mapping[str, Sequence[TrainingStep]]) -> ChartLine:
    moments = [read_moments(reader, run, steps[run.record.id]) for run in runs]
    shared = sorted(set.intersection(*(set(one) for one in moments)))
    means = [[fmean(one[step][place] for one in moments) for step in shared] for place in (0, 1)]
    return ChartLine(name, tuple(run.record.id for run in runs), tuple(shared), tuple(means[0]), tuple(means[1]))


def read_moments(reader: Reader, run: Run, steps: Sequence[TrainingStep]) -> dict[int, tuple[float, float]]:
    """By step its end in seconds from the run's start, and the tokens of all trajectories so far."""
    totals = reader.step_totals(run.record.id)
    tokens = dict(zip((one.step for one in totals), accumulate(one.num_tokens for one in totals), strict=True))
    found, so_far = dict[int, tuple[float, float]](), 0
    for step in steps:
        so_far = tokens.get(step.step, so_far)
        found[step.step] = (max(0.0, step.finished - run.record.started), float(so_far))
    return found
