"""Clients of the page, in process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from rlf.apps.web.app import create_app
from rlf.apps.web.forks import FreshProcesses
from rlf.apps.web.settings import WebSettings
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from ...reports.synthetic import events, run_record

TOKEN = "a-token"
ORIGIN = "http://127.0.0.1:8642"
Clients = Callable[..., TestClient]
_IDLE: dict[bool, list[FastAPI]] = {True: [], False: []}
"""Apps that no test uses now, by whether they are read-only, which decides their routes."""


def make_app(settings: WebSettings) -> FastAPI:
    """An app as a new one would be, with the routes and templates of an idle one: to make these takes long."""
    if not _IDLE[settings.read_only]:
        return create_app(settings)
    app = _IDLE[settings.read_only].pop()
    site = app.state.site
    templates = site._templates
    site.__init__(settings)
    templates.globals.update(site._templates.globals)
    site._templates = templates
    for layer in app.user_middleware:
        now = {"settings": settings, "fresh": site.fresh}
        layer.kwargs |= {name: now[name] for name in layer.kwargs}
    app.middleware_stack = None
    return app


@pytest.fixture(autouse=True, scope="package")
def one_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sites share the process that their tasks are forked from as long as the environment is that of its start."""
    folder = tmp_path_factory.mktemp("zygote")
    connect = FreshProcesses._connect

    def environment() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}

    before = environment()
    with closing(FreshProcesses(folder, folder)) as shared, pytest.MonkeyPatch.context() as patch:
        patch.setattr(FreshProcesses, "_connect", lambda self: connect(shared if environment() == before else self))
        yield


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lineage with one finished run; tests must not write."""
    folder = tmp_path_factory.mktemp("web") / "runs"
    with open_store(folder / "rlf.db") as store:
        start_run(store, run_record())
        with Recorder(store, run_record().id) as recorder:
            for event in events(num_steps=2, eval_every=1, num_questions=6):
                recorder(event)
    return folder


@pytest.fixture
def clients(runs_folder: Path, tmp_path: Path) -> Iterator[Clients]:
    """Makes clients that have the token and send what a page of the server sends."""
    with ExitStack() as stack:

        def make(**settings: object) -> TestClient:
            known = {"project": tmp_path, "runs_folder": runs_folder, "port": 8642, "token": TOKEN}
            app = make_app(WebSettings(**(known | settings)))
            stack.callback(_IDLE[app.state.site.settings.read_only].append, app)
            client = TestClient(app, base_url=ORIGIN, raise_server_exceptions=False)
            client.headers |= {"Authorization": f"Bearer {TOKEN}", "Origin": ORIGIN, "X-RLF": "1"}
            return stack.enter_context(client)

        yield make


@pytest.fixture
def client(clients: Clients) -> TestClient:
    """A client of the lineage with one run."""
    return clients()
