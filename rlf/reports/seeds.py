"""A sweep of seeds alone as Markdown and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlf.reports.compare.arms import Arm
from rlf.reports.compare.page import courses_of
from rlf.reports.pages.curves import further_charts, main_charts
from rlf.reports.pages.render import render
from rlf.reports.quantities import visible
from rlf.reports.sheets import Sheet, sheet_markdown
from rlf.reports.sweep import COLUMNS, SeedReport, mean_words, member_rows


def seeds_sheet(report: SeedReport) -> Sheet:
    """The members as a table of text."""
    rows = tuple(member_rows(report.sweep.rows))
    return Sheet("held-out success of each seed", mean_words(report), COLUMNS, rows)


def seeds_markdown(report: SeedReport) -> str:
    """The members and their mean as Markdown."""
    return f"# {report.sweep.name} · {report.sweep.run_id}\n\n{sheet_markdown(seeds_sheet(report))}\n"


def seeds_page(report: SeedReport, arms: Sequence[Arm]) -> str:
    """The members, their mean and their curves as HTML; it loads nothing."""
    return render("run.html", **seeds_values(report, arms))


def seeds_values(report: SeedReport, arms: Sequence[Arm]) -> dict[str, Any]:
    """Values of the template."""
    courses, sweep = courses_of(arms), report.sweep
    return {
        "title": f"{visible(sweep.name)} · {sweep.run_id}",
        "verdicts": [mean_words(report)],
        "status": sweep.status if sweep.error is None else f"{sweep.status}: {sweep.error}",
        "notices": [],
        "results": [seeds_sheet(report)],
        "charts": main_charts(courses),
        "more_charts": further_charts(courses),
        "example": None,
        "facts": [("sweep", sweep.run_id)],
        "files": Sheet("files", "", (), ()),
    }
