"""Comparisons: arms, verdicts, curves, and the questions that differ."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rlf.apps.web.comparisons import ComparisonView, QuestionView, view_comparison, view_question
from rlf.apps.web.site import Area, Site
from rlf.core.errors import RlfError

Names = Annotated[list[str], Query(max_length=26)]


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "compare")

    @area.read("/compare")
    def compare_runs(arm: Names = [], mode: str = "") -> ComparisonView | None:  # noqa: B006
        """Compares arms, one `arm=` each: a run, seeds joined by commas, or a sweep. The first is the baseline."""
        if not arm:
            return None
        with site.reader() as reader:
            return view_comparison(reader, arm, mode or None)

    @area.read("/compare/question")
    def compare_question(task: str, arm: Names, left: str = "A", right: str = "B", mode: str = "") -> QuestionView:
        """One question as two arms answered it, turn beside turn."""
        if len(arm) < 1:
            raise RlfError("arm: name the runs that are compared.")
        with site.reader() as reader:
            return view_question(reader, arm, mode or None, task, (left, right), site.openings)

    return area
