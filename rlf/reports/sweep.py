"""A sweep at a glance: one line for each member, with held-out success before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from rlf.core.plain_json import Jsonable
from rlf.lineage.records import SWEEP
from rlf.reports.sheets import MISSING, Sheet, percent, percent_range, sheet_table, visible
from rlf.reports.statistics import Estimate, Interval, mean_share
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import Run, RunLine


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


def sweep_view(report: SweepReport, note: str = "") -> RenderableType:
    """Renders a sweep."""
    title = Text(f"{visible(report.name)} · {report.run_id} {report.status}", style="bold")
    if report.error is not None:
        title.append(f": {visible(report.error)}", "red")
    return Group(title, sheet_table(seeds_sheet(report, note)))


@dataclass(frozen=True, slots=True)
class SeedReport(Jsonable):
    """A sweep of nothing but seeds: one setting, and what chance does to it."""

    sweep: SweepReport
    num_seeds: int
    """Members with an evaluation."""
    mean: float | None
    """Of the members' latest held-out success; None without any."""
    interval: Interval | None
    """95 % interval of the mean over seeds (Student's t); None for fewer than two, or where they are all equal."""
    markdown: str = field(default="", repr=False, metadata={"json": None})
    """The members and their mean for people, of a comparison."""

    def _repr_markdown_(self) -> str:
        return self.markdown


def read_seeds(reader: Reader, names: Sequence[str]) -> SeedReport | None:
    """The report where `names` is one sweep whose members differ in their seeds alone; else None."""
    run = reader.get_run(names[0]) if len(names) == 1 and "," not in names[0] else None
    if run is None or not is_sweep(run):
        return None
    sweep = read_sweep(reader, run.record.id)
    settings = {tuple(word for word in row.overrides if not word.startswith("seed=")) for row in sweep.rows}
    if len(settings) > 1:
        return None
    values = [row.after for row in sweep.rows if row.after is not None]
    mean = mean_share(values) or Estimate(None)
    return SeedReport(sweep, len(values), mean.value, mean.interval)


def seeds_view(report: SeedReport) -> RenderableType:
    """The members, then their mean with its interval."""
    return sweep_view(report.sweep, mean_words(report))


def mean_words(report: SeedReport) -> str:
    """`mean of 3 seeds 50.0 %, 95 % interval 25.2–74.8 %`."""
    interval = report.interval
    within = "no interval" if interval is None else f"95 % interval {percent_range(interval.low, interval.high)}"
    return f"mean of {report.num_seeds} seeds {percent(report.mean)}, {within}"


def seeds_sheet(report: SweepReport, note: str) -> Sheet:
    """The members as a table of text."""
    rows = tuple(
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
    return Sheet("held-out success of each member", note, ("member", "run", "status", "step", "before", "after"), rows)
