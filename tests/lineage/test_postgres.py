"""The same lineage on a real PostgreSQL: written, read, resumed, brought forward, merged, cleaned."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from rlf.apps.keep.archive import copy_run
from rlf.apps.keep.damage import find_damage
from rlf.apps.keep.upkeep import drop_unnamed_blobs, remove_run
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import Keep, add_note, add_tags, begin_resume, thin
from rlf.types import EvaluationFinished, RunFinished, RunStatus

from ..postgres import postgres_server
from .builders import run_record, scored, step


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """A database of the test's own."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("DROP DATABASE IF EXISTS own"))
        connection.execute(text("CREATE DATABASE own"))
    engine.dispose()
    yield server.replace("/postgres?", "/own?")


def test_a_run_is_written_read_and_resumed(url: str) -> None:
    with open_store(url) as store:
        start_run(store, run_record("r"))
        with Recorder(store, "r") as recorder:
            for number in (1, 2):
                recorder(step(number, 4))
            recorder(EvaluationFinished(2, "sampled", {"success": 1.0}, [scored(8)]))
            recorder(RunFinished(RunStatus.INTERRUPTED, 2))
        begin_resume(store, "r", 1)
    with open_store(url) as store:
        reader = Reader(store)
        assert reader.get_run("latest").record == run_record("r", started=reader.get_run("r").record.started)
        assert [done.step for done in reader.steps("r")] == [1]
        assert [total.num_trajectories for total in reader.step_totals("r")] == [4]
        assert reader.trajectory("r", k=2, step=1).scored == step(1, 4).trajectories[2]
        assert list(find_damage(store)) == []


def test_runs_move_between_databases_and_are_marked_thinned_and_removed(url: str, tmp_path) -> None:
    with open_store(tmp_path / "rlf.db") as local, open_store(url) as team:
        start_run(local, run_record("r"), patch="+ a line\n" * 99)
        with Recorder(local, "r") as recorder:
            recorder(step(1, 4))
            recorder(RunFinished(RunStatus.FINISHED, 1))
        assert copy_run(local, team, "r") and not copy_run(local, team, "r")
        add_tags(team, "r", ("best", "kept"))
        add_note(team, "r", "the one in the paper")
        reader = Reader(team)
        assert (reader.tags(), reader.notes("r")[0].text) == ({"r": ("best", "kept")}, "the one in the paper")
        assert reader.trajectory("r", k=3).scored == Reader(local).trajectory("r", k=3).scored
        assert thin(team, "r", Keep()) == 4
        assert drop_unnamed_blobs(team).num_contents > 0
        assert list(find_damage(team)) == []
        remove_run(team, "r")
        assert reader.list_runs() == []


def test_processes_that_open_a_fresh_database_at_once_make_it_once(url: str) -> None:
    program = f"from rlf.lineage.store import open_store; open_store({url!r}).close()"
    opened = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in opened:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
