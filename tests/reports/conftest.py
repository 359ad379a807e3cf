"""A recorded run to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from .synthetic import events, run_record


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The lineage with one finished run in it; tests must not write."""
    folder: Path = tmp_path_factory.mktemp("lineage")
    with open_store(folder / "rlf.db") as store:
        start_run(store, run_record())
        with Recorder(store, run_record().id) as recorder:
            for event in events():
                recorder(event)
        yield Reader(store)
