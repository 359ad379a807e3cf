"""A database of the first version opens, and a fresh one has the very tables that the code writes."""

import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import rlf.lineage
from rlf.core.errors import RlfError, RunError
from rlf.lineage.blobs import compress
from rlf.lineage.migrate import HEAD, VERSION_TABLE
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.tables import metadata
from rlf.lineage.upkeep import begin_resume
from rlf.types import Notice, RunStatus

from .builders import run_record, scored, step

MIGRATIONS = Path(rlf.lineage.__file__).parent / "migrations"
DUMPS = sorted((Path(__file__).parent / "versions").glob("*.sql"))


def test_the_tables_of_a_new_database_are_those_of_the_metadata(store):
    check_tables(store)


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_the_migrated_tables_are_those_of_the_metadata(tmp_path, dump):
    with open_store(database_of(dump, tmp_path)) as store:
        check_tables(store)


def check_tables(store):
    with store.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        )
        assert context.get_current_revision() == HEAD
        assert compare_metadata(context, metadata) == []


def test_the_newest_revision_is_the_one_the_code_expects():
    scripts = ScriptDirectory(str(MIGRATIONS))
    assert scripts.get_heads() == [HEAD]


def test_every_revision_has_a_database_to_be_tested_with():
    revisions = {script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}
    assert {dump.stem for dump in DUMPS} == revisions


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_a_database_of_each_version_is_read_and_continued(tmp_path, dump):
    """The dumps hold run `old` with two steps of two trajectories."""
    with open_store(database_of(dump, tmp_path)) as store:
        reader = Reader(store)
        record = reader.get_run("latest").record
        assert record == run_record("old", started=1700000000.0, folder=record.folder)
        assert [step.step for step in reader.steps("old")] == [1, 2]
        assert reader.trajectory("old", k=1, step=2).scored == scored(1, num_tokens=20, text_bytes=20)
        assert reader.get_run("old").status is RunStatus.INTERRUPTED  # its process was seen last in 2023
        begin_resume(store, "old", 2)
        with Recorder(store, "old") as recorder:
            recorder(Notice("info", "still written", {}))
        assert reader.events("old")[-1].text == "still written"


@pytest.mark.parametrize("revision", ["0001", "0007"])
def test_a_database_from_before_the_first_version_is_refused_with_the_commit_that_exports_it(path, revision):
    at_revision(path, revision)
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(RlfError) as refused:
            open_store(path, read_only=read_only)
        for words in (str(path), f"schema {revision}", "commit 2ca147a2", "rlf runs export", "rlf runs import"):
            assert words in str(refused.value)
    assert path.read_bytes() == before


def test_a_database_of_a_newer_version_is_refused(path):
    at_revision(path, "0010")
    for read_only in (False, True):
        with pytest.raises(RlfError, match=r"schema 0010 is newer than this rlf knows \(0009\)"):
            open_store(path, read_only=read_only)


def test_a_trajectory_from_before_the_first_version_is_named_as_that(path):
    with open_store(path) as store:
        start_run(store, run_record("r"))
        with Recorder(store, "r") as recorder:
            recorder(step(1, 1))
    for old in (zlib.compress(b"\1" + bytes(8)), compress(b"\2" + bytes(8))):
        with sqlite3.connect(path) as database:
            database.execute("UPDATE payloads SET data = ?", [old])
        database.close()
        with open_store(path) as store, pytest.raises(RlfError, match="commit 2ca147a2"):
            Reader(store).trajectory("r", k=0, step=1)


def test_the_next_version_brings_a_database_forward_and_keeps_every_row(tmp_path, next_version):
    path = database_of(DUMPS[-1], tmp_path)
    before = rows_of(path)
    next_version()
    open_store(path).close()
    after = rows_of(path)
    assert {row["mood"] for row in after["runs"]} == {"calm"}
    for row in after["runs"]:
        del row["mood"]
    assert after == before


def test_a_database_that_is_only_read_is_not_brought_forward(tmp_path, next_version):
    path = database_of(DUMPS[-1], tmp_path)
    next_version()
    with pytest.raises(RunError, match="schema of an older rlf and is read-only here"):
        open_store(path, read_only=True)


def at_revision(path, revision):
    open_store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE rlf_version SET version_num = ?", [revision])
        database.execute("PRAGMA journal_mode = DELETE")
    database.close()


def database_of(dump, folder):
    path = folder / "rlf.db"
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    return path


def rows_of(path):
    """Every row by its table, but for the revision."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = {name: list(map(dict, connection.execute(f"SELECT * FROM {name}"))) for name in names}
    connection.close()
    del tables[VERSION_TABLE]
    return tables


def test_a_fresh_database_opened_by_several_processes_at_once_is_made_once(tmp_path):
    program = (
        "import sys; from rlf.lineage.store import open_store; print('ready', flush=True); sys.stdin.readline()\n"
        f"open_store({str(tmp_path / 'new' / 'rlf.db')!r}).close()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    opened = [subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) for _ in range(4)]
    for process in opened:
        assert process.stdout.readline() == "ready\n"
    for process in opened:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in opened:
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
    with open_store(tmp_path / "new" / "rlf.db", create=False) as store:
        assert Reader(store).list_runs() == []


def test_opening_a_database_that_is_up_to_date_loads_no_alembic(path):
    open_store(path).close()
    program = (
        "import sys; from rlf.lineage.store import open_store\n"
        f"open_store({str(path)!r}).close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
