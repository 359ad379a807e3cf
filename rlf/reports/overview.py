"""All runs at a glance: one line each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from rlf.reports.quantities import MISSING, duration, percent, visible
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import Evaluation, Run

STATUS_STYLES = {
    RunStatus.RUNNING: "cyan",
    RunStatus.FINISHED: "green",
    RunStatus.FAILED: "red",
    RunStatus.INTERRUPTED: "yellow",
}


@dataclass(frozen=True, slots=True)
class Overview:
    """One run's line."""

    run_id: str
    name: str
    status: RunStatus
    step: int
    seed: int
    started: float
    """Unix time in seconds."""
    finished: float | None
    evaluation: Evaluation | None
    """The latest sampled one, or the latest of any mode; None before the first."""
    parent_id: str | None = None
    """The sweep that it is a member of, or the run that it goes on from; None for one that stands alone."""


def read_overviews(reader: Reader) -> list[Overview]:
    """Every run, newest first."""
    return [_overview(run, reader.evaluations(run.record.id)) for run in reader.list_runs()]


def _overview(run: Run, evaluations: Sequence[Evaluation]) -> Overview:
    record = run.record
    sampled = [evaluation for evaluation in evaluations if evaluation.mode == "sampled"] or evaluations
    latest = sampled[-1] if sampled else None
    return Overview(
        run_id=record.id,
        name=record.name,
        status=run.status,
        step=run.last_step,
        seed=record.seed,
        started=record.started,
        finished=run.finished,
        evaluation=latest,
        parent_id=record.parent_id,
    )


def overview_table(overviews: Sequence[Overview]) -> Table:
    """Renders overviews as a table."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run", no_wrap=True)
    table.add_column("name", overflow="ellipsis")
    table.add_column("status", no_wrap=True)
    for header in ("step", "seed", "time", "held-out"):
        table.add_column(header, justify="right", no_wrap=True)
    with_parents = any(item.parent_id for item in overviews)
    if with_parents:
        table.add_column("parent", no_wrap=True)
    for item in overviews:
        status = Text(str(item.status), STATUS_STYLES[item.status])
        success = MISSING if item.evaluation is None else percent(item.evaluation.metrics.get("success"))
        elapsed = duration(elapsed_s(item.started, item.finished, item.status))
        parent = [item.parent_id or ""] if with_parents else []
        table.add_row(
            item.run_id, visible(item.name), status, str(item.step), str(item.seed), elapsed, success, *parent
        )
    return table


def elapsed_s(started: float, finished: float | None, status: RunStatus) -> float | None:
    """Seconds from start to end, or to now; None when the end is not known."""
    if finished is None and status is not RunStatus.RUNNING:
        return None
    return (time.time() if finished is None else finished) - started
