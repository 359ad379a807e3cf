"""Runs: the list, and one run."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rlf.reports.overview import OverviewPage, page_overviews
from rlf.web.site import Area, Site


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "runs")

    @area.view("/runs", "runs/list.html")
    def list_runs(
        q: str = "",
        sort: str = "",
        after: str = "",
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> OverviewPage:
        """Runs that a filter wants, newest first or by a name's value, a page at a time."""
        if not site.has_lineage:
            return OverviewPage((), 0, 0, None)
        with site.reader() as reader:
            return page_overviews(reader, q or None, sort or None, after or None, limit)

    return area
