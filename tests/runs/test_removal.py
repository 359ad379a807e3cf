"""Nothing outside of the runs folder is touched, and a removal is whole or seen."""

import signal
import sqlite3
import subprocess
import sys

import pytest
from sqlalchemy import delete, insert

from rlf.apps.keep.archive import copy_run
from rlf.apps.keep.export import export_model
from rlf.apps.keep.upkeep import remove_with_folders
from rlf.apps.keep.verification import verify, verify_folder
from rlf.core import RlfError
from rlf.core.files import path_inside, run_folder
from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.upkeep import removing
from rlf.runs.place import open_lineage
from rlf.runs.restore import drop_checkpoints
from rlf.types import RunFinished, RunStatus

from ..lineage.builders import run_record

RUN = "20260101-000000-aaaa"


@pytest.fixture
def runs(tmp_path):
    """A runs folder with one finished run and its folder."""
    folder = tmp_path / "runs"
    with open_lineage(folder, create=True) as store, Recorder(store, RUN) as recorder:
        start_run(store, run_record(RUN, folder=str(folder / RUN)))
        recorder(RunFinished(RunStatus.FINISHED, 0))
    (folder / RUN).mkdir()
    (folder / RUN / "file").touch()
    return folder


@pytest.fixture
def victim(tmp_path):
    """A folder of someone else."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "precious").touch()
    yield folder
    assert (folder / "precious").exists()


def rename_run(runs, run_id):
    with sqlite3.connect(runs / "rlf.db") as database:
        database.execute("UPDATE runs SET id = ?", [run_id])


def remove(runs, **options):
    with open_lineage(runs) as store:
        reader = Reader(store)
        return remove_with_folders(reader, reader.list_runs(), runs, keep_files=options.get("keep_files", False))


@pytest.mark.parametrize(
    "run_id",
    ["../victim", "../../victim/precious", "..", ".", "", "a/../../victim", "/etc", ".hidden", "a\n", "a\x1b[2J"],
)
def test_an_id_that_is_no_name_of_a_folder_is_refused_wherever_it_becomes_a_path(runs, victim, run_id):
    rename_run(runs, run_id)
    with pytest.raises(RlfError, match="not a run's id"):
        run_folder(runs, run_id)
    with pytest.raises(RlfError, match="not a run's id"):
        remove(runs)
    with pytest.raises(RlfError, match="not a run's id"):
        export_model("latest", runs.parent / "out", runs_folder=runs)
    with open_lineage(runs) as store, open_lineage(runs.parent / "here", create=True) as target:
        with pytest.raises(RlfError, match="not a run's id"):
            copy_run(store, target, run_id)
        assert Reader(target).list_runs() == []
        assert any("not a run's id" in fault for fault in verify(Reader(store), runs).faults)
    assert remove(runs, keep_files=True).removed[0].folder is None


def test_a_run_whose_folder_is_a_link_out_of_the_runs_folder_is_not_removed(runs, victim):
    rename_run(runs, "linked")
    (runs / "linked").symlink_to(victim)
    with pytest.raises(RlfError, match="leads out of"):
        remove(runs)


def test_a_runs_folder_may_itself_be_a_link(runs):
    link = runs.with_name("link")
    link.symlink_to(runs)
    assert path_inside(link, link.absolute() / RUN) == runs / RUN
    assert remove(link).removed[0].run_id == RUN and not (runs / RUN).exists()


@pytest.mark.parametrize("relative", [False, True])
def test_checkpoints_that_lead_out_of_the_runs_folder_are_not_dropped(runs, victim, relative, monkeypatch):
    monkeypatch.chdir(runs)
    (runs / RUN / "link").symlink_to(victim)
    for path in ("../victim" if relative else str(victim), str(runs / RUN / "link")):
        with open_lineage(runs) as store:
            with store.write() as connection:
                row = {"run_id": RUN, "step": 3, "path": path, "sha256": "h", "saved": 0.0}
                connection.execute(delete(tables.checkpoints))
                connection.execute(insert(tables.checkpoints), row)
            with pytest.raises(RlfError, match="leads out of"):
                drop_checkpoints(store, RUN, runs / RUN, from_step=1)
            assert len(Reader(store).checkpoints(RUN)) == 1


def test_an_export_copies_nothing_that_a_link_in_the_run_points_to_outside(runs, victim):
    (runs / RUN / "model").mkdir()
    (runs / RUN / "model" / "config.json").write_text("{}")
    (runs / RUN / "model" / "weights").symlink_to(victim / "precious")
    with open_lineage(runs) as store, store.write() as connection:
        connection.exec_driver_sql(
            """UPDATE runs SET plan = '{"spec": {"train": {"steps": 1}, "model": {"path": "builtin:tiny"}}}'"""
        )
    with pytest.raises(RlfError, match="leads out of"):
        export_model("latest", runs.parent / "out", runs_folder=runs)
    assert not (runs.parent / "out").exists()


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import rlf.lineage.upkeep as marks
from rlf.runs.place import open_reader
from rlf.apps.keep.upkeep import remove_with_folders

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

at = sys.argv[2]
if at == "marked":
    shutil.rmtree = die
elif at == "halfway":
    shutil.rmtree = lambda folder: (next(folder.iterdir()).unlink(), die())
else:
    marks.delete = die
with open_reader(Path(sys.argv[1])) as reader:
    remove_with_folders(reader, reader.list_runs(), Path(sys.argv[1]), keep_files=False)
"""


def kill_removal(runs, at):
    done = subprocess.run([sys.executable, "-c", KILLED, str(runs), at], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("at", ["marked", "halfway", "folder gone"])
def test_a_removal_that_is_killed_is_finished_by_the_next_command(runs, at, caplog):
    kill_removal(runs, at)
    found = verify_folder(runs)
    assert (found.num_runs, found.faults, found.remarks) == (0, (), ())
    assert not (runs / RUN).exists() and not (runs / "rlf.db-leases").exists()
    assert [record.message for record in caplog.records] == [
        f"run {RUN}: its removal was interrupted; it is finished now"
    ]
    with sqlite3.connect(runs / "rlf.db") as database:
        assert database.execute("SELECT COUNT(*) FROM runs").fetchone() == (0,)


def test_a_run_whose_removal_was_killed_is_not_shown_where_nothing_can_be_finished(runs):
    kill_removal(runs, "halfway")
    with open_lineage(runs, read_only=True) as store:
        assert Reader(store).list_runs() == []
    assert (runs / RUN).exists()


def test_a_removal_that_cannot_be_finished_stops_no_command(runs, victim, caplog):
    kill_removal(runs, "marked")
    rename_run(runs, "linked")
    (runs / "linked").symlink_to(victim)
    with open_lineage(runs) as store:
        assert Reader(store).list_runs() == []
    assert "cannot be finished: " in caplog.text and "leads out of" in caplog.text


def test_a_removal_that_is_under_way_is_left_to_its_process(runs):
    with open_lineage(runs) as store, removing(store, [RUN]):
        open_lineage(runs).close()
        assert (runs / RUN / "file").exists()


def test_a_running_run_stops_the_removal_of_all(runs):
    other = "20260101-000000-bbbb"
    with open_lineage(runs) as store:
        start_run(store, run_record(other, folder=str(runs / other)))
        with pytest.raises(RlfError, match="still running"):
            remove(runs)
        assert {run.record.id: run.status for run in Reader(store).list_runs()}[RUN] is RunStatus.FINISHED
    assert (runs / RUN / "file").exists()


def test_verify_names_folders_of_runs_that_the_lineage_does_not_have(runs):
    (runs / "20260102-000000-bbbb").mkdir()
    (runs / "notes").mkdir()
    with open_lineage(runs) as store:
        found = verify(Reader(store), runs)
    assert found.faults == () and len(found.remarks) == 1 and "20260102-000000-bbbb" in found.remarks[0]
