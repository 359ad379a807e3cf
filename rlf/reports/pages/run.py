"""One run as one page: its result, its curves, a question before and after, and at the end what it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rlf.reports import costs, judges
from rlf.reports.change import Change, shifts
from rlf.reports.opening import ReadOpening
from rlf.reports.pages.curves import Course, further_charts, main_charts
from rlf.reports.pages.render import render
from rlf.reports.pages.turns import beside, side
from rlf.reports.quantities import rate, visible
from rlf.reports.report import TOOL_COLUMNS, Report, origin_facts, shown_events, status_words, tool_rows
from rlf.reports.sheets import Sheet
from rlf.reports.summary import difference_words, rate_rows, shift_lines

if TYPE_CHECKING:
    from rlf.lineage.records import Evaluation

_NUM_NOTICES = 8


def run_page(report: Report, evaluations: Sequence[Evaluation], opening: ReadOpening) -> str:
    """The page as HTML; it loads nothing."""
    record, changes, verdict = report.run.record, report.summary.changes, report.verdict.line
    lines = [line for line in shift_lines(changes, shifts(changes)) if line not in verdict]
    courses = [Course("", [report.steps], [evaluations])]
    files = ((file.role, visible(file.path), file.sha256[:12]) for file in record.files)
    return render(
        "run.html",
        title=f"{visible(record.name)} · {record.id}",
        verdicts=[verdict, *lines],
        status=status_words(report.run),
        notices=[f"{event.level}: {event.text}" for event in shown_events(report.events)[-_NUM_NOTICES:]]
        + [f"note: {note.text}" for note in report.notes],
        results=[sheet for sheet in _make_sheets(report) if sheet.rows],
        charts=main_charts(courses),
        more_charts=further_charts(courses),
        example=_show_example_trajectory(report, opening),
        facts=list(origin_facts(report.run)),
        files=Sheet("files", "", ("role", "path", "sha256"), tuple(files)),
    )


def _make_sheets(report: Report) -> Iterator[Sheet]:
    yield Sheet(
        "held-out success",
        "in brackets: 95 % confidence intervals",
        ("", "before", "after", "change"),
        tuple(row for change in report.summary.changes for row in _rate_cells(change)),
        figures=True,
    )
    yield from usage_sheets(report)


def usage_sheets(report: Report) -> Iterator[Sheet]:
    """Tables of tools, judges and costs over the whole run."""
    tables = (
        ("tools", "over training and evaluations", TOOL_COLUMNS, tool_rows(report.tools)),
        ("judges", "over training and evaluations", judges.COLUMNS, judges.judge_rows(report.judges)),
        ("costs", "of all that the run did", costs.COLUMNS, costs.cost_rows(report.costs)),
    )
    for title, note, header, rows in tables:
        yield Sheet(title, note, header, tuple(rows), figures=True)


def _rate_cells(change: Change) -> Iterator[tuple[str, ...]]:
    for name, before, after in rate_rows(change):
        yield (
            visible(name.replace("  ", "\u2003")),
            rate(before.value, before.interval),
            rate(after.value, after.interval),
            difference_words(before.value, after.value),
        )


def _show_example_trajectory(report: Report, opening: ReadOpening) -> object:
    found = report.summary.example
    if found is None:
        return None
    sides = ((f"step {stored.summary.step}", stored) for stored in (found.before, found.after))
    left, right = (side(name, stored, opening(stored.scored.trajectory)) for name, stored in sides)
    return beside(left, right)
