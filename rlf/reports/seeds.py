"""A sweep of seeds alone as Markdown and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from rlf.reports.compare.arms import Arm
from rlf.reports.compare.sheets import Sheet, sheet_markdown
from rlf.reports.pages.curves import Course, further_charts, main_charts
from rlf.reports.pages.render import render
from rlf.reports.quantities import MISSING, percent, visible
from rlf.reports.sweep import SeedReport, mean_words


def seeds_sheet(report: SeedReport) -> Sheet:
    """The members as a table of text."""
    rows = tuple(
        (
            " ".join(row.overrides),
            row.run_id or MISSING,
            row.status or "not started",
            str(row.step),
            percent(row.before),
            percent(row.after),
        )
        for row in report.sweep.rows
    )
    header = ("member", "run", "status", "step", "before", "after")
    return Sheet("held-out success of each seed", mean_words(report), header, rows)


def seeds_markdown(report: SeedReport) -> str:
    """The members and their mean as Markdown."""
    return f"# {report.sweep.name} · {report.sweep.run_id}\n\n{sheet_markdown(seeds_sheet(report))}\n"


def seeds_page(report: SeedReport, arms: Sequence[Arm]) -> str:
    """The members, their mean and their curves as HTML; it loads nothing."""
    courses = [Course(arm.letter, [m.steps for m in arm.members], [m.evaluations for m in arm.members]) for arm in arms]
    sweep = report.sweep
    return render(
        "run.html",
        title=f"{visible(sweep.name)} · {sweep.run_id}",
        verdicts=[mean_words(report)],
        status=sweep.status if sweep.error is None else f"{sweep.status}: {sweep.error}",
        notices=[],
        results=[seeds_sheet(report)],
        charts=main_charts(courses),
        more_charts=further_charts(courses),
        example=None,
        facts=[("sweep", sweep.run_id)],
        files=Sheet("files", "", (), ()),
    )
