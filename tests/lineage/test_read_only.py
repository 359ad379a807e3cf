"""A runs folder that cannot be written can be read, and a database of another program is left as it is."""

import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.core import RlfError, hash_path
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.runs.place import open_lineage

from ..reports.synthetic import events, run_record

NOBODY = 65534


RUNS = ("20260102-030405-abcd", "20260102-030405-bcde")


@pytest.fixture
def folder():
    """A runs folder with two whole runs, in a place that every user may enter."""
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        runs = Path(home) / "runs"
        with open_lineage(runs, create=True) as store:
            for seed, run_id in enumerate(RUNS):
                with Recorder(store, run_id) as recorder:
                    start_run(store, run_record(run_id))
                    for event in events(num_steps=2, eval_every=2, num_questions=4, seed=seed):
                        recorder(event)
        yield runs
        runs.chmod(0o755)


@pytest.fixture
def locked(folder, monkeypatch):
    """Makes the folder read-only for this process, root or not."""

    def lock():
        for path in folder.iterdir():
            path.chmod(0o555 if path.is_dir() else 0o444)
        folder.chmod(0o555)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)

    user = os.geteuid()
    monkeypatch.setenv("COLUMNS", "200")
    yield lock
    os.seteuid(user)


def rlf(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_runs_folder_that_cannot_be_written_can_be_read(folder, locked):
    run_id = RUNS[0]
    commands = [
        ["runs", "list", "--json"],
        ["runs", "show", run_id, "--json"],
        ["runs", "show", run_id, "--lineage"],
        ["runs", "compare", *RUNS],
        ["trace", run_id],
        ["trace", run_id, "0"],
    ]
    written = [rlf(*words, "--runs", folder) for words in commands]
    assert {result.exit_code for result in written} == {0}, [result.output for result in written]
    locked()
    for words, before in zip(commands, written, strict=True):
        shown = rlf(*words, "--runs", folder)
        assert (shown.exit_code, shown.stdout) == (0, before.stdout), (words, shown.output, shown.exception)
    tagged = rlf("runs", "tag", run_id, "best", "--runs", folder)
    assert tagged.exit_code == 1 and "cannot be written" in tagged.stderr
    assert {path.name for path in folder.iterdir()} <= {"rlf.db", "rlf.db-leases"}


@pytest.mark.parametrize("with_shm", [False, True])
def test_rows_in_a_wal_file_are_read_or_said_to_be_missing(folder, locked, caplog, with_shm):
    with sqlite3.connect(folder / "rlf.db", isolation_level=None) as writer:
        writer.execute("UPDATE runs SET name = 'in the file'")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        writer.execute("UPDATE runs SET name = 'in the wal'")
        copies = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}  # as a crash leaves them
    writer.close()
    for path, data in copies.items():
        if with_shm or path.name != "rlf.db-shm":
            path.write_bytes(data)
    locked()
    with open_lineage(folder) as store:
        name = Reader(store).list_runs()[0].record.name
    assert name == ("in the wal" if with_shm else "in the file")
    assert ("newest rows are in rlf.db-wal" in caplog.text) == (not with_shm)


def test_a_database_of_an_older_checkout_that_cannot_be_written_is_refused(folder, locked):
    with sqlite3.connect(folder / "rlf.db") as database:
        database.execute("UPDATE rlf_version SET version_num = '0001'")
    locked()
    with pytest.raises(RlfError, match="checkout before the first version"):
        open_lineage(folder)


def test_a_database_of_another_program_is_left_as_it_is(tmp_path):
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / "rlf.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs (name TEXT)")
    database.close()
    before = hash_path(path)
    for create in (False, True):
        with pytest.raises(RlfError, match="belongs to another program: it holds songs"):
            open_lineage(tmp_path / "runs", create=create)
    assert rlf("runs", "list", "--runs", tmp_path / "runs").exit_code == 2
    assert hash_path(path) == before and [found.name for found in path.parent.iterdir()] == ["rlf.db"]


def test_a_foreign_database_in_wal_mode_gets_no_tables(tmp_path):
    path = tmp_path / "rlf.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE songs (name TEXT)")
    database.close()
    with pytest.raises(RlfError, match="belongs to another program"):
        open_store(path)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]


@pytest.mark.parametrize("place", ["file", "file/runs", "link"])
def test_a_runs_option_that_is_no_folder_is_refused_before_anything_starts(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("link").symlink_to("nowhere/at/all")
    monkeypatch.setattr("rlf.runs.start.check_spec", lambda *_: pytest.fail("the spec was read first"))
    for words in (["run", "search.yaml"], ["run", "search.yaml", "-m", "seed=0,1"]):
        started = rlf(*words, "--runs", place)
        assert started.exit_code == 2 and "expected a folder for runs" in started.stderr, started.output
    listed = rlf("runs", "list", "--runs", place)
    assert listed.exit_code == 2 and listed.exception.code == 2


def test_a_runs_folder_that_cannot_be_written_is_refused_before_anything_starts(folder, locked, monkeypatch):
    monkeypatch.setattr("rlf.runs.start.check_spec", lambda *_: pytest.fail("the spec was read first"))
    locked()
    for place in (folder, folder / "new"):
        started = rlf("run", "search.yaml", "--runs", place)
        assert started.exit_code == 2 and "cannot be written" in started.stderr, started.output
