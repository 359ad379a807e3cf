"""An open store in a fresh folder, with one run in it."""

import pytest

from rlf.lineage import Reader, open_store, start_run

from .builders import run_record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "rlf.db"


@pytest.fixture
def store(path):
    with open_store(path) as opened:
        yield opened


@pytest.fixture
def run_id(store):
    start_run(store, run_record("20260101-000000-aaaa"))
    return "20260101-000000-aaaa"


@pytest.fixture
def reader(store):
    return Reader(store)
