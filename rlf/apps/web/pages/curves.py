"""Curves: those of several runs over each other, one of them at full size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from rlf.apps.web.overlays import read_overlay
from rlf.apps.web.pages.shared import lineage, page
from rlf.apps.web.run_views import run_title
from rlf.core.errors import RlfError

router = APIRouter(include_in_schema=False)
AXES = {"step": "step", "time": "time", "tokens": "tokens"}


@router.get("/curves")
def show_curves(
    request: Request,
    a: Annotated[Sequence[str], Query()] = (),
    m: str = "",
    group: str = "",
    x: str = "step",
    log: str = "",
    smooth: Annotated[float, Query(ge=0, lt=1)] = 0.0,
) -> HTMLResponse:
    """The curves of runs over each other.

    Args:
        a: the runs.
        m: the metric at full size.
        group: a key of the plans whose values are the lines, instead of runs.
        x: what the curves are drawn by: `step`, `time` or `tokens`.
    """
    if not a:
        raise RlfError("curves: no run is named. Choose some in the list of runs, then press Curves.")
    with lineage(request) as reader:
        found = read_overlay(reader, list(a), m, group)
        lines, tags = (
            [reader.run_lines(run_id=run_id)[0] for arm in found.arms for run_id in arm.run_ids],
            reader.tags(),
        )
        runs = {line.id: replace(line, name=run_title(line.name, tags.get(line.id, ()))) for line in lines}
    values = {
        "found": found,
        "runs": runs,
        "arms": [asdict(arm) for arm in found.arms],
        "charts": [asdict(found.chart)] if found.chart else [],
        "others": [asdict(chart) for chart in found.others],
        "group": group,
        "view": {"x": x if x in AXES else "step", "log": bool(log), "smooth": smooth},
    }
    return page(request, "curves.html", "Curves", place="runs", **values)
