"""Files of the reports that pages use too."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse

import rlf.reports.pages
from rlf.apps.web.run_views import run_title
from rlf.apps.web.site import Site
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run

router = APIRouter(include_in_schema=False)
_FOLDER = Path(rlf.reports.pages.__file__).parent


@router.get("/static/report.css")
def send_style() -> FileResponse:
    """Sends the style that reports and pages share."""
    return FileResponse(_FOLDER / "report.css")


@router.get("/static/report.js")
def send_script() -> FileResponse:
    """Sends the script for a report's charts, folds and keys."""
    return FileResponse(_FOLDER / "report.js")


# Templates filled in for one request, and the lineage that they show.


def page(request: Request, template: str, /, title: str, **values: Any) -> HTMLResponse:
    """One page, or only its content for htmx; `place` in the values is the entry that the navigation marks."""
    run = values.get("run")
    if isinstance(run, Run):
        with lineage(request) as reader:
            name = run_title(run.record.name, reader.tags().get(run.record.id, ()))
        values["run"] = replace(run, record=replace(run.record, name=name))
    return site_of(request).page(request, template, title=title, **values)


def site_of(request: Request) -> Site:
    """The server's project and lineage."""
    site: Site = request.app.state.site
    return site


def lineage(request: Request) -> AbstractContextManager[Reader]:
    """The lineage that the server shows. Raises RlfError where there is none."""
    return site_of(request).reader()


def is_part(request: Request) -> bool:
    """Whether htmx asks only for the content of an open page: slow values are computed only then."""
    return "hx-request" in request.headers
