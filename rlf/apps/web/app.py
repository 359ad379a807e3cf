"""The application on its port: the areas' routes behind the guard, their schemas, and how errors are answered."""

from __future__ import annotations

import dataclasses
import gc
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from rlf import __version__
from rlf.apps.web.api import AREAS
from rlf.apps.web.files import StaleError
from rlf.apps.web.guard import Departures, RequestGuard
from rlf.apps.web.pages import ROUTERS
from rlf.apps.web.settings import WebSettings
from rlf.apps.web.site import API, Area, Site
from rlf.cli.start import settle
from rlf.core.errors import CheckError, NotFoundError, RlfError, RunError, SpecError
from rlf.core.plain_json import as_json
from rlf.core.registry import is_present, load_function
from rlf.core.servers import listening, url_of

# Response schemas of each operation of `/api/v1`, from the types that its function returns.

_REFS = "#/components/schemas/"
_FAULT = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "faults": {"type": "array"}},
    "required": ["code", "message", "faults"],
}
_SCHEMAS = "apps.schema.outputs:returned_schemas"
_ERROR = {"type": "object", "properties": {"error": _FAULT}, "required": ["error"]}


def describe_answers(
    document: dict[str, Any], answers: Mapping[str, tuple[int, Callable[..., Any] | str]]
) -> dict[str, Any]:
    """An OpenAPI document with the schemas of answers and errors; those of streams stay as they are.

    Args:
        answers: by operation its status, and the function whose result it is, the task in a fork, or the place below
            rlf of an app's function.
    """
    from rlf.apps.web.tasks import TASKS  # loads what checks load

    functions = {name: one for name, (_, one) in answers.items() if not isinstance(one, str)}
    names = {name: one for name, (_, one) in answers.items() if isinstance(one, str)}
    functions |= {name: TASKS[one] if one in TASKS else load_function(one) for name, one in names.items()}
    if not is_present(_SCHEMAS):
        return document
    schemas, definitions = load_function(_SCHEMAS)(functions, _REFS)  # loads what every command may print
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components |= definitions | {"Error": _ERROR}
    error = {"description": "What is wrong", "content": {"application/json": {"schema": {"$ref": f"{_REFS}Error"}}}}
    for methods in document["paths"].values():
        for operation in methods.values():
            name = operation["operationId"]
            if name in schemas:
                content = {"application/json": {"schema": schemas[name]}}
                operation["responses"] = {str(answers[name][0]): {"description": "Done", "content": content}}
            operation["responses"]["default"] = error
    return document


logger = logging.getLogger(__name__)
_STATUS = {
    StaleError: (412, "stale"),
    NotFoundError: (404, "missing"),
    CheckError: (409, "check"),
    RunError: (500, "run"),
    RlfError: (422, "input"),
}


class _App(FastAPI):
    """Describes what its routes answer, which FastAPI does not see: they return data as `as_json` writes it."""

    def __init__(self, areas: Sequence[Area], **settings: Any) -> None:
        super().__init__(**settings)
        self._answers = {name: answer for area in areas for name, answer in area.answers.items()}

    def openapi(self) -> dict[str, Any]:
        """The document at `/api/v1/openapi.json`."""
        if self.openapi_schema is None:
            self.openapi_schema = describe_answers(super().openapi(), self._answers)
        return self.openapi_schema


def create_app(settings: WebSettings) -> FastAPI:
    """The page of a project; `uvicorn` serves it."""
    site = Site(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        site.close()

    areas = [module.routes(site) for module in AREAS]
    app = _App(
        areas,
        title="rlf",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.site = site
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    for area in areas:
        app.include_router(area.router)
    _answer_errors(app, site)
    app.add_middleware(Departures, fresh=site.fresh)
    app.add_middleware(RequestGuard, settings=settings)
    return app


def _answer_errors(app: FastAPI, site: Site) -> None:
    """Errors as JSON under `/api/v1`, as a page elsewhere; a defect of rlf shows no traceback to a visitor."""

    def respond(request: Request, status: int, code: str, error: str, faults: object = ()) -> Response:
        body = {"code": code, "message": error, "faults": as_json(faults)}
        if request.url.path.startswith(API):
            return JSONResponse({"error": body}, status)
        return site.page(request, "error.html", status, data=body | {"status": status})

    @app.exception_handler(RlfError)
    def answer_rlf(request: Request, error: RlfError) -> Response:
        status, code = next(found for kind, found in _STATUS.items() if isinstance(error, kind))
        return respond(request, status, code, str(error), error.faults if isinstance(error, SpecError) else ())

    @app.exception_handler(HTTPException)
    def answer_http(request: Request, error: HTTPException) -> Response:
        code = "missing" if error.status_code == 404 else "refused"
        return respond(request, error.status_code, code, error.detail)

    @app.exception_handler(RequestValidationError)
    def answer_invalid(request: Request, error: RequestValidationError) -> Response:
        words = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return respond(request, 422, "input", words)

    @app.exception_handler(OverflowError)
    def answer_number(request: Request, error: OverflowError) -> Response:
        return respond(request, 422, "input", "a number is too large.")

    @app.exception_handler(Exception)
    def answer_defect(request: Request, error: Exception) -> Response:
        logger.error("a defect of rlf, met by %s", request.url.path, exc_info=error)
        return respond(
            request, 500, "defect", f"rlf failed: {type(error).__name__}. The server's log has the traceback."
        )


class _Server(uvicorn.Server):
    """Ends streams and calls of user code at the first signal: it would wait for them, and cancel them with traces."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGINT and SIGTERM."""
        self._site.end()
        super().handle_exit(sig, frame)


def serve_page(settings: WebSettings, announce: Callable[[str], None]) -> None:
    """Listens and serves; `announce` gets the address to open, with the token where there is one."""
    with listening(settings.host, settings.port) as listener:
        settings = dataclasses.replace(settings, port=listener.getsockname()[1])
        guarded = create_app(settings)
        config = uvicorn.Config(guarded, log_level="warning", server_header=False, timeout_graceful_shutdown=2)
        token = f"/?token={settings.token}" if settings.token else "/"
        gc.collect()
        settle()  # to look through what is imported takes as long as an answer
        announce(f"{url_of(listener)}{token}")
        _Server(config, guarded.state.site).run(sockets=[listener])
