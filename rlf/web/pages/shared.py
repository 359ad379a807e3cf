"""Files of the reports that pages use too."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

import rlf.reports.pages

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
