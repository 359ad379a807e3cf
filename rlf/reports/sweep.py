"""A sweep at a glance: one line for each member, with held-out success before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from rlf.lineage.records import SWEEP, Run, RunLine
from rlf.reports.sheets import MISSING, Sheet, percent, sheet_table, visible
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One member."""

    overrides: tuple[str, ...]
    run_id: str | None
    """None: it was never registered."""
    status: RunStatus | None
    step: int
    before: float | None
    """Held-out success at the first evaluation, sampled."""
    after: float | None
    """The same at the latest."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """All that is shown of a sweep."""

    run_id: str
    name: str
    status: RunStatus
    error: str | None
    rows: tuple[SweepRow, ...]


def is_sweep(run: Run) -> bool:
    """Whether a run of the lineage is a sweep."""
    return run.record.engine == SWEEP


def read_sweep(reader: Reader, run_id: str) -> SweepReport:
    """Reads a sweep and its members from the lineage."""
    sweep = reader.get_run(run_id)
    members = reversed(reader.run_lines(parent_id=sweep.record.id))
    run_by_hash = {line.plan_hash: line for line in members}
    planned = sweep.record.plan["members"]
    rows = [_make_member_row(reader, tuple(item["overrides"]), run_by_hash.get(item["plan_hash"])) for item in planned]
    return SweepReport(sweep.record.id, sweep.record.name, sweep.status, sweep.error, tuple(rows))


def _make_member_row(reader: Reader, overrides: tuple[str, ...], run: RunLine | None) -> SweepRow:
    if run is None:
        return SweepRow(overrides, None, None, 0, None, None)
    evaluations = reader.evaluations(run.id)
    sampled = [found.metrics.get("success") for found in evaluations if found.mode == "sampled"]
    before, after = (sampled[0], sampled[-1]) if sampled else (None, None)
    return SweepRow(overrides, run.id, run.status, run.last_step, before, after)


def sweep_view(report: SweepReport) -> RenderableType:
    """Renders a sweep."""
    title = Text(f"{visible(report.name)} · {report.run_id} {report.status}", style="bold")
    if report.error is not None:
        title.append(f": {visible(report.error)}", "red")
    rows = (
        (
            visible(" ".join(row.overrides)),
            row.run_id or MISSING,
            str(row.status or "not started"),
            str(row.step),
            percent(row.before),
            percent(row.after),
        )
        for row in report.rows
    )
    header = ("member", "run", "status", "step", "before", "after")
    return Group(title, sheet_table(Sheet("held-out success of each member", "", header, tuple(rows))))
