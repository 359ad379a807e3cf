"""Runs: the list, one run, its curves and what it was made from."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query

from rlf.apps.web.plan_values import KeyRuns, read_key, read_plans
from rlf.apps.web.run_views import Curves, OverviewPage, RunView, page_overviews, read_curves, read_run
from rlf.apps.web.site import Area, Site
from rlf.core.errors import RlfError
from rlf.lineage import upkeep as marks
from rlf.lineage.graph import Graph, read_graph
from rlf.lineage.upkeep import RunNote, RunTags
from rlf.reports.sweep import SweepReport

Named = Annotated[str, Query(min_length=1, max_length=500)]
Limit = Annotated[int, Query(ge=1, le=500)]
Words = Annotated[list[str], Body(embed=True, max_length=50)]


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "runs")

    @area.read("/runs")
    def list_runs(q: str = "", sort: str = "", after: str = "", limit: Limit = 50) -> OverviewPage:
        """Runs that a filter wants, newest first or by a name's value, a page at a time."""
        if not site.has_lineage:
            return OverviewPage((), 0, 0, None)
        with site.reader() as reader:
            return page_overviews(reader, q or None, sort or None, after or None, limit)

    @area.read("/runs/{run}")
    def show_run(run: str) -> RunView:
        """One run: result, curves, tools, health, notices, files and plan."""
        with site.reader() as reader:
            return read_run(reader, run)

    @area.read("/runs/{run}/curves")
    def show_curves(run: str, names: str = "", points: Annotated[int, Query(ge=2, le=20_000)] = 2000) -> Curves:
        """Metrics of a run's steps: all, or those in a list with commas."""
        with site.reader() as reader:
            return read_curves(reader, run, list(filter(None, names.split(","))), points)

    @area.read("/sweeps/{run}")
    def show_sweep(run: str) -> SweepReport:
        """The members of a sweep, each with its setting and its result."""
        with site.reader() as reader:
            found = read_run(reader, run).sweep
        if found is None:
            raise RlfError(f'run {run}: is not a sweep. The filter `engine == "sweep"` of the list shows them.')
        return found

    @area.read("/keys")
    def show_key(spec: Named, key: Named) -> KeyRuns:
        """Results of a spec's runs with other values of a key, and pairs of runs that differ in that key alone."""
        with site.reader() as reader:
            return read_key(reader, read_plans(reader, spec), spec, key)

    @area.read("/runs/{run}/graph")
    def show_graph(run: str, step: int | None = None) -> Graph:
        """Inputs and products of a run with hashes; with a step, its trajectories too."""
        with site.reader() as reader:
            return read_graph(reader, reader.get_run(run).record.id, step)

    @area.act("POST", "/runs/{run}/tags")
    def tag_run(run: str, tags: Words, remove: Annotated[bool, Body(embed=True)] = False) -> RunTags:
        """Gives a run tags, or takes them off."""
        with site.reader() as reader:
            return marks.tag(reader, run, tags, remove=remove)

    @area.act("POST", "/runs/{run}/notes")
    def note_run(run: str, text: Annotated[str, Body(embed=True, min_length=1, max_length=10_000)]) -> RunNote:
        """Adds a note to a run."""
        with site.reader() as reader:
            return marks.note(reader, run, text)

    return area
