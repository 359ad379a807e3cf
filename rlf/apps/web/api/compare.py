"""Comparisons: arms, verdicts, curves, and the questions that differ, by the app that compares runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from rlf.apps.web.site import Area, Site
from rlf.core.registry import load_function

Names = Annotated[list[str], Query(max_length=26)]
_COMPARISON, _QUESTION = "apps.compare.page:view_comparison", "apps.compare.page:view_question"


def routes(site: Site) -> Area:
    """The routes of the area; none where the app is not here."""
    area = Area(site, "compare")
    if "compare" not in site.settings.apps:
        return area

    @area.read("/compare", task=_COMPARISON)
    def compare_runs(arm: Names = [], mode: str = "") -> Any:  # noqa: B006
        """Compares arms, one `arm=` each: a run, seeds joined by commas, or a sweep. The first is the baseline."""
        with site.reader() as reader:
            return load_function(_COMPARISON)(reader, arm, mode or None)

    @area.read("/compare/question", task=_QUESTION)
    def compare_question(task: str, arm: Names, left: str = "A", right: str = "B", mode: str = "") -> Any:
        """One question as two arms answered it, turn beside turn."""
        with site.reader() as reader:
            return load_function(_QUESTION)(reader, arm, mode or None, task, (left, right), site.openings)

    return area
