"""Templates filled in for one request; those of the reports are shared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse

from rlf.api.lineage import Reader, open_reader
from rlf.core.hashing import short
from rlf.reports import quantities
from rlf.web.pages.drawing import bar_level, spark_path

if TYPE_CHECKING:
    from fastapi import Request
    from jinja2 import Environment

_HERE = Path(__file__).parents[1]


def page(request: Request, template: str, title: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """One page; `place` of the values names what the navigation marks."""
    state = request.app.state
    shared = {
        "title": title,
        "path": request.url.path,
        "project": state.root.name,
        "read_only": state.read_only,
        "nonce": getattr(request.state, "nonce", ""),
        "layout": "layout.html",
        "place": "",
        "now": time.time(),
    }
    text = environment().get_template(template).render(shared | values)
    return HTMLResponse(text, status_code=status)


@contextmanager
def lineage(request: Request) -> Iterator[Reader]:
    """The lineage that the server shows. Raises RlfError where there is none."""
    with open_reader(request.app.state.runs_folder) as reader:
        yield reader


@cache
def environment() -> Environment:
    """Templates of the page and of the reports, with the filters that both write figures by."""
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined

    folders = (_HERE / "templates", _HERE.parent / "reports" / "pages")
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("visible", "percent", "decimal", "duration", "latency", "count", "dollars", "rate", "points")
    made.filters |= {name: getattr(quantities, name) for name in names}
    made.filters |= {"short": short, "clock": _clock, "ago": _ago, "size": _size, "spark": spark_path, "level": bar_level}
    return made


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _ago(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`, `2 d`: how long ago a Unix time was."""
    passed = max(0.0, time.time() - seconds)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= length:
            return f"{passed / length:.0f} {unit}"
    return f"{passed:.0f} s"


def _size(num_bytes: float) -> str:
    """`812 B`, `12.3 kB`, `4.5 GB`."""
    for length, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= length:
            return f"{num_bytes / length:.1f} {unit}"
    return f"{num_bytes:.0f} B"
