"""Templates filled in for one request, and the lineage that they show."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from rlf.api.lineage import Reader
from rlf.web.site import Site


def page(request: Request, template: str, /, title: str, **values: Any) -> HTMLResponse:
    """One page, or only its content for htmx; `place` in the values is the entry that the navigation marks."""
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
