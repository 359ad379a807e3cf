"""Specs: the tree of files, and the editor with faults, plan and commands."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from rlf.apps.web.pages.shared import page, site_of

router = APIRouter(include_in_schema=False)
_ROLES = {"specs": "spec", "tool_specs": "tool", "reward_specs": "reward"}


@router.get("/specs")
def show_specs(request: Request) -> HTMLResponse:
    """The project's files; none is open."""
    return page(request, "spec.html", "Specs", place="specs", tree=_tree(request), file=None, role="spec")


@router.get("/specs/{path:path}")
def show_spec(request: Request, path: str) -> HTMLResponse:
    """One file in the editor."""
    file = site_of(request).files.read(path)
    values = {"tree": _tree(request), "file": file, "role": _ROLES[path.split("/")[0]]}
    return page(request, "spec.html", path, place="specs", **values)


def _tree(request: Request) -> dict[str, list[str]]:
    return {folder: site_of(request).files.names(folder) for folder in _ROLES}
