"""The site that the routes of all areas share: lineage, templates, and how one function becomes a page and JSON."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rlf import __version__
from rlf.api.fresh.client import FreshProcesses
from rlf.api.jobs import Jobs
from rlf.api.lineage import Reader, blaming_damage, open_lineage
from rlf.api.runs.openings import Openings
from rlf.api.specs.files import ProjectFiles
from rlf.core.identity import short
from rlf.core.plain_json import as_json
from rlf.reports import sheets
from rlf.web.drawing import ago, bar_level, clock, image_source, size, spark_path
from rlf.web.settings import WebSettings

API = "/api/v1"
_MAX_OPENINGS = 16
_MAX_KEPT = 5_000
_HERE = Path(__file__).parent
_SHARED = _HERE.parent / "reports" / "pages"
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
        return "RLF_DB" in os.environ or (self.settings.runs_folder / "rlf.db").exists()

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
        """By operation: its status, and the function, or the task of `rlf.api.fresh.tasks`, that returns the data."""
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
            summary=_summary(function),
            operation_id=function.__name__,
        )
        return function


def _summary(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").split("\n\n")[0].strip().rstrip(".")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_environment() -> Environment:
    """Templates in which every text is escaped and has its control and direction characters shown."""
    environment = Environment(
        loader=FileSystemLoader([_HERE / "templates", _SHARED]),
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
