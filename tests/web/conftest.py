"""Clients of the page, in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rlf.lineage import Recorder, open_store, start_run
from rlf.web.app import create_app
from rlf.web.settings import WebSettings

from ..reports.synthetic import events, run_record

TOKEN = "a-token"
ORIGIN = "http://127.0.0.1:8642"
Clients = Callable[..., TestClient]


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
            app = create_app(WebSettings(**(known | settings)))
            client = TestClient(app, base_url=ORIGIN, raise_server_exceptions=False)
            client.headers |= {"Authorization": f"Bearer {TOKEN}", "Origin": ORIGIN, "X-RLF": "1"}
            return stack.enter_context(client)

        yield make


@pytest.fixture
def client(clients: Clients) -> TestClient:
    """A client of the lineage with one run."""
    return clients()
