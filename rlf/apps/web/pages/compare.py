"""Runs beside each other: the page of `rlf runs compare --html` within the navigation."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from rlf.apps.web.pages.shared import lineage, page, site_of
from rlf.apps.web.run_views import page_overviews, run_title
from rlf.core.errors import NotFoundError, RlfError
from rlf.core.registry import load_function
from rlf.lineage.reader import Reader

router = APIRouter(include_in_schema=False)

_NUM_OFFERED = 40


@router.get("/compare")
def show_comparison(
    request: Request, a: Annotated[Sequence[str], Query()] = (), mode: str | None = None
) -> HTMLResponse:
    """Arms, the first one the baseline; commas join the seeds of one. With fewer than two a choice of runs."""
    if "compare" not in site_of(request).settings.apps:
        raise NotFoundError("this rlf has no `rlf runs compare`, whose page this is.")
    fault = ""
    if not site_of(request).has_lineage and not a:
        return page(request, "choose.html", "Compare", place="compare", chosen=(), offered=(), fault="")
    with lineage(request) as reader:
        names = [name for name in a if name.strip()]
        if names:
            try:
                return _compared(request, reader, names, mode or None)
            except RlfError as error:
                fault = str(error) if len(names) > 1 else ""
        found = page_overviews(reader, None, None, None, _NUM_OFFERED).runs
        offered = [replace(run, name=run_title(run.name, run.tags)) for run in found]
    return page(request, "choose.html", "Compare", place="compare", chosen=names, offered=offered, fault=fault)


def _compared(request: Request, reader: Reader, names: Sequence[str], mode: str | None) -> HTMLResponse:
    values = load_function("apps.compare.page:template_values")(reader, names, mode)
    command = shlex.join(["rlf", "runs", "compare", *names, *(["--mode", mode] if mode else [])])
    about: dict[str, Any] = {"command": command, "names": names, "mode": mode or ""}
    return page(request, "compare_page.html", place="compare", **about, **values)
