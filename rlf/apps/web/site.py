"""The site that the routes of all areas share: lineage, templates, and how one function becomes a page and JSON."""

from __future__ import annotations

import base64
import json
import math
import shlex
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import rlf.reports.pages
from rlf import __version__
from rlf.apps.web.files import ProjectFiles
from rlf.apps.web.forks import FreshProcesses
from rlf.apps.web.jobs import Jobs
from rlf.apps.web.settings import WebSettings, apps_with_page
from rlf.core.errors import RlfError
from rlf.core.identity import short
from rlf.core.images import read_image_file
from rlf.core.plain_json import as_json
from rlf.lineage.read_only import has_lineage
from rlf.lineage.reader import Reader
from rlf.reports import sheets
from rlf.runs.place import blaming_damage, open_lineage
from rlf.runs.trajectories import Openings

# Figures and small drawings of templates, as words, paths and levels; pages have no styles.

SPARK_WIDTH, SPARK_HEIGHT = 72, 18
NUM_LEVELS = 20
"""Lengths that a bar of the style sheet has."""


def spark_path(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """A curve as the path of an SVG of 72 by 18; values that are not finite are left out.

    Args:
        low: the value at the bottom; None takes the smallest.
        high: the value at the top; None takes the largest.
    """
    points = [(place, value) for place, value in enumerate(values) if math.isfinite(value)]
    if len(points) < 2:
        return ""
    bottom = min(value for _, value in points) if low is None else low
    top = max(value for _, value in points) if high is None else high
    across = (SPARK_WIDTH - 4) / (len(values) - 1)
    down = (SPARK_HEIGHT - 4) / (top - bottom) if top > bottom else 0.0
    places = [(2 + place * across, SPARK_HEIGHT - 2 - (value - bottom) * down) for place, value in points]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def bar_level(share: float | None) -> int:
    """The class of a bar that is as long as a share, from 0 to 20."""
    if share is None or not math.isfinite(share):
        return 0
    return round(NUM_LEVELS * min(1.0, max(0.0, share)))


def clock(seconds: float) -> str:
    """`2026-11-22 18:24:12`: a Unix time where the server is."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def ago(seconds: float) -> str:
    """`12 s ago`, `5 min ago`, `3 h ago`, `2 d ago`: when a Unix time was."""
    passed = max(0.0, time.time() - seconds)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= length:
            return f"{passed / length:.0f} {unit} ago"
    return f"{passed:.0f} s ago"


def image_source(reference: str) -> str:
    """A `data:` URI of an image, typed by its first bytes; empty for anything but an image."""
    if not reference.startswith("data:"):
        return ""
    try:
        data = read_image_file(reference)
    except RlfError:
        return ""
    return f"data:{data.mime_type};base64,{base64.b64encode(data.data).decode()}"


def size(num_bytes: float) -> str:
    """`812 B`, `12.3 kB`, `4.5 GB`."""
    for length, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= length:
            return f"{num_bytes / length:.1f} {unit}"
    return f"{num_bytes:.0f} B"


def render_markdown(text: str) -> Markup:
    """A person's note as HTML: what is HTML in it is text, images are not loaded, and links lead nowhere that runs."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable("image")
    return Markup(made.render("\n".join(map(sheets.visible, text.splitlines()))))


API = "/api/v1"
_MAX_OPENINGS = 16
_MAX_KEPT = 5_000
_HERE = Path(__file__).parent
_SHARED = Path(rlf.reports.pages.__file__).parent
"""Templates and style of the reports, which are parts of pages too."""
_Handler = TypeVar("_Handler", bound=Callable[..., Any])
T = TypeVar("T")


class Site:
    """One server's project, lineage and templates."""

    def __init__(self, settings: WebSettings) -> None:
        self.settings = settings
        self._templates = _make_environment()
        self._templates.globals["site"] = settings
        self._templates.globals["version"] = __version__
        self.runs_folder = settings.runs_folder
        self.files = ProjectFiles(settings.project)
        self.jobs = Jobs(settings.runs_folder, settings.project)
        self.fresh = FreshProcesses(settings.project, settings.runs_folder)
        self.is_ending = False
        self._lock = threading.Lock()
        self._opened: _Opened | None = None
        self._openings: dict[str, Openings] = {}

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """The lineage, opened at the first request and again when its file was replaced. Raises RlfError without."""
        opened = self._borrow()
        try:
            with blaming_damage(opened.reader.store):
                yield opened.reader
        finally:
            with self._lock:
                opened.num_users -= 1
                if opened is not self._opened:
                    opened.close_unused()

    def _borrow(self) -> _Opened:
        """The lineage that is there now; one that was replaced is closed by its last user."""
        file = self.settings.runs_folder / "rlf.db"
        with self._lock:
            if self._opened is None or _identity(file) != self._opened.file:
                before, self._opened = self._opened, None
                if before is not None:
                    before.close_unused()
                store = open_lineage(self.settings.runs_folder, read_only=self.settings.read_only)
                self._opened = _Opened(Reader(store), _identity(file))
            self._opened.num_users += 1
            return self._opened

    def openings(self, run_id: str) -> Openings:
        """The readers of a run's prompts and tokens; a few are kept, since each loads a tokenizer."""
        with self._lock:
            if run_id not in self._openings:
                assert self._opened is not None, "openings are asked for within `reader`"
                while len(self._openings) >= _MAX_OPENINGS:
                    del self._openings[next(iter(self._openings))]
                self._openings[run_id] = Openings(self._opened.reader.get_run(run_id))
            return self._openings[run_id]

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """Caches a value made from the lineage by a key that names all it depends on; call it within `reader`."""
        opened = self._opened
        kept: dict[Hashable, T] = {} if opened is None else opened.kept
        found = kept.get(key)
        if found is None:
            found = make()
            with self._lock:
                while len(kept) >= _MAX_KEPT:
                    del kept[next(iter(kept))]
                kept[key] = found
        return found

    @property
    def has_lineage(self) -> bool:
        """Whether there is a lineage."""
        return has_lineage(self.settings.runs_folder)

    def end(self) -> None:
        """Ends streams and waiting calls."""
        self.is_ending = True
        self.fresh.end_calls()

    def close(self) -> None:
        """Closes the lineage and ends the zygote; jobs continue."""
        with self._lock:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close_unused()
        self.fresh.close()

    def page(self, request: Request, template: str, status: int = 200, /, **values: object) -> HTMLResponse:
        """A template filled in with values: whole, or without its frame for a request of htmx."""
        is_part = "hx-request" in request.headers and "hx-boosted" not in request.headers
        text = self._templates.get_template(template).render(
            values,
            layout="layout/part.html" if is_part else "layout/page.html",
            path=request.url.path,
            query=request.query_params,
            nonce=request.state.nonce,
        )
        return HTMLResponse(text, status, headers={"Vary": "HX-Request"})


@dataclass(slots=True)
class _Opened:
    """A lineage that is open."""

    reader: Reader
    file: tuple[int, int] | None
    """Which file it is."""
    num_users: int = 0
    """Requests that read it now."""
    kept: dict[Hashable, Any] = field(default_factory=dict)
    """What was made of it."""

    def close_unused(self) -> None:
        """Closes the store, unless a request still reads it."""
        if self.num_users == 0:
            self.reader.store.close()


class Area:
    """The routes of one area under `/api/v1`: functions of a request's parameters that return frozen data."""

    def __init__(self, site: Site, name: str) -> None:
        self.router = APIRouter(prefix=API, tags=[name])
        self.answers: dict[str, tuple[int, Callable[..., Any] | str]] = {}
        """By operation: its status, and what returns the data: the function, the task of `rlf.apps.web.tasks`, or the
        place below rlf of an app's function."""
        self._read_only = site.settings.read_only

    def read(self, path: str, *, task: str | None = None) -> Callable[[_Handler], _Handler]:
        """Registers a function that changes nothing. Args: task: whose result it returns, where that is one's."""
        return lambda function: self._answer(path, "GET", function, 200, task)

    def act(
        self, method: str, path: str, status: int = 200, *, task: str | None = None
    ) -> Callable[[_Handler], _Handler]:
        """Registers a function that changes or starts something; a server that is read-only has no such route."""
        return lambda function: function if self._read_only else self._answer(path, method, function, status, task)

    def _answer(self, path: str, method: str, function: _Handler, status: int, task: str | None) -> _Handler:
        self.answers[function.__name__] = (status, task or function)

        def answer(data: Any = Depends(function)) -> JSONResponse:
            return JSONResponse(as_json(data), status)

        self.router.add_api_route(
            path,
            answer,
            methods=[method],
            response_model=None,
            summary=(function.__doc__ or "").split("\n\n")[0].strip().rstrip("."),
            operation_id=function.__name__,
        )
        return function


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_environment() -> Environment:
    """Templates in which every text is escaped and has its control and direction characters shown."""
    environment = Environment(
        loader=FileSystemLoader(
            [_HERE / "templates", _SHARED, *(_HERE.parent / app for app in sorted(apps_with_page()))]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: sheets.visible(value) if type(value) is str else value,
    )
    environment.filters |= {name: words for name, words in vars(sheets).items() if callable(words)}
    environment.filters |= {"datetime": _time_element, "short": short, "spark": spark_path, "level": bar_level}
    environment.filters |= {
        "clock": clock,
        "ago": ago,
        "size": size,
        "markdown": render_markdown,
        "image_source": image_source,
        "json": _json,
        "quote": shlex.quote,
    }
    return environment


def _json(value: Any, indent: int | None = None) -> str:
    """JSON to read, in letters as they are; `tojson` is for scripts."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def _time_element(seconds: float) -> Markup:
    """A moment in UTC that a browser may show in its own zone."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), moment.strftime("%Y-%m-%d %H:%M UTC"))
