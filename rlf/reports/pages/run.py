"""One run as one page: its result, its curves, a question before and after, and at the end what it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rlf.reports.change import Change, shifts
from rlf.reports.compare.sheets import Sheet
from rlf.reports.costs import COLUMNS, cost_rows
from rlf.reports.opening import ReadOpening
from rlf.reports.pages.curves import Course, further_charts, main_charts
from rlf.reports.pages.render import render
from rlf.reports.pages.turns import beside, side
from rlf.reports.quantities import MISSING, count, dollars, latency, percent, percent_range, visible
from rlf.reports.report import Report, origin_facts, shown_events, status_words
from rlf.reports.summary import Rate, difference_words, rate_rows, shift_lines

if TYPE_CHECKING:
    from rlf.lineage.records import Evaluation

_NUM_NOTICES = 8


def run_page(report: Report, evaluations: Sequence[Evaluation], opening: ReadOpening) -> str:
    """The page as HTML; it loads nothing."""
    record, changes, verdict = report.run.record, report.summary.changes, report.verdict.line
    lines = [line for line in shift_lines(changes, shifts(changes)) if line not in verdict]
    courses = [Course("", [report.steps], [evaluations])]
    return render(
        "run.html",
        title=f"{visible(record.name)} · {record.id}",
        verdicts=[verdict, *lines],
        status=status_words(report.run),
        notices=[f"{event.level}: {event.text}" for event in shown_events(report.events)[-_NUM_NOTICES:]]
        + [f"note: {note.text}" for note in report.notes],
        results=[sheet for sheet in _sheets(report) if sheet.rows],
        charts=main_charts(courses),
        more_charts=further_charts(courses),
        example=_example(report, opening),
        facts=list(origin_facts(report.run)),
        files=Sheet("files", "", ("role", "path", "sha256"), tuple(_files(report))),
    )


def _sheets(report: Report) -> Iterator[Sheet]:
    yield Sheet(
        "held-out success",
        "in brackets: 95 % confidence intervals",
        ("", "before", "after", "change"),
        tuple(row for change in report.summary.changes for row in _rates(change)),
        figures=True,
    )
    tools = (
        (visible(tool.name), f"{tool.num_calls:,}", latency(tool.mean_run_s), latency(tool.max_run_s), outcomes)
        for tool in report.tools
        for outcomes in [", ".join(f"{outcome} {number:,}" for outcome, number in tool.num_by_outcome.items())]
    )
    yield Sheet("tools", "", ("tool", "calls", "mean", "longest", "outcomes"), tuple(tools), figures=True)
    judges = ((visible(one.term), count(one.num_tokens), dollars(one.cost_usd)) for one in report.judges)
    yield Sheet("judges", "over training and evaluations", ("term", "tokens", "cost"), tuple(judges), figures=True)
    yield Sheet("costs", "of all that the run did", COLUMNS, tuple(cost_rows(report.costs)), figures=True)


def _rates(change: Change) -> Iterator[tuple[str, ...]]:
    for name, before, after in rate_rows(change):
        yield (
            visible(name.replace("  ", "\u2003")),
            _rate(before),
            _rate(after),
            difference_words(before.share, after.share),
        )


def _rate(rate: Rate) -> str:
    if rate.share is None:
        return MISSING
    return percent(rate.share) + ("" if rate.interval is None else f" ({percent_range(*rate.interval)})")


def _example(report: Report, opening: ReadOpening) -> object:
    found = report.summary.example
    if found is None:
        return None
    sides = ((f"step {stored.summary.step}", stored) for stored in (found.before, found.after))
    left, right = (side(name, stored, opening(stored.scored.trajectory)) for name, stored in sides)
    return beside(left, right)


def _files(report: Report) -> Iterator[tuple[str, ...]]:
    for file in report.run.record.files:
        yield file.role, visible(file.path), file.sha256[:12]
