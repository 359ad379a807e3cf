"""One run as a page shows it, and its curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlf.api.runs.news import Cursor
from rlf.lineage.reader import Reader
from rlf.lineage.records import Evaluation, RunLine
from rlf.reports.evaluations import EvaluationReport, is_evaluation, read_evaluations
from rlf.reports.report import Report, read_report
from rlf.reports.sweep import SweepReport, is_sweep, read_sweep
from rlf.types.events import RunStatus


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with its details: one of `report`, `sweep` and `evaluated`, by the kind of run."""

    run: RunLine
    report: Report | None
    sweep: SweepReport | None
    evaluated: EvaluationReport | None
    evaluations: tuple[Evaluation, ...]
    children: tuple[RunLine, ...]
    """Forks, members, reproductions and evaluations of it, newest first."""
    tags: tuple[str, ...]
    cursor: str
    """From which `/api/v1/events` shows what comes after this."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Metrics of a run's steps; some are left out where there are too many."""

    run_id: str
    status: RunStatus
    num_planned: int | None
    """Steps that the plan has; None where it has none."""
    steps: tuple[int, ...]
    finished: tuple[float, ...]
    """Unix time of each step's end."""
    values: dict[str, tuple[float | None, ...]]
    """By metric, aligned with `steps`; None where a step has no such number."""
    evaluations: tuple[Evaluation, ...]


def read_run(reader: Reader, name: str) -> RunView:
    """Reads a run by its id, the beginning of one, or `latest`."""
    run = reader.get_run(name)
    run_id = run.record.id
    sweep, evaluated = is_sweep(run), is_evaluation(run)
    report = None if sweep or evaluated else read_report(reader, run_id)
    evaluations = reader.evaluations(run_id)
    cursor = Cursor(run_id).behind(
        () if report is None else report.steps, evaluations, 0 if report is None else len(report.events)
    )
    return RunView(
        run=reader.run_lines(run_id=run_id)[0],
        report=report,
        sweep=read_sweep(reader, run_id) if sweep else None,
        evaluated=read_evaluations(reader, [run_id]) if evaluated else None,
        evaluations=tuple(evaluations),
        cursor=str(cursor),
        children=tuple(reader.run_lines(parent_id=run_id)),
        tags=reader.tags().get(run_id, ()),
    )


def read_curves(reader: Reader, name: str, names: Sequence[str], max_points: int) -> Curves:
    """The curves of a run.

    Args:
        names: metrics; all of them where it is empty.
        max_points: steps at most; the last one is always there.
    """
    run = reader.get_run(name)
    every = reader.steps(run.record.id)
    stride = max(1, math.ceil(len(every) / max_points))
    steps = every[::-stride][::-1]
    known = names or sorted({metric for step in steps for metric in step.metrics})
    return Curves(
        run_id=run.record.id,
        status=run.status,
        num_planned=run.record.plan.get("spec", {}).get("train", {}).get("steps"),
        steps=tuple(step.step for step in steps),
        finished=tuple(step.finished for step in steps),
        values={metric: tuple(step.metrics.get(metric) for step in steps) for metric in known},
        evaluations=tuple(reader.evaluations(run.record.id)),
    )
