"""Opening a store: what is set, what is refused, and what the message says."""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from rlf.core import RlfError, RunError
from rlf.lineage import store as store_module
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import DamagedDatabase, open_store
from rlf.lineage.upkeep import begin_resume
from rlf.runs.place import open_lineage
from rlf.types import RunFinished, RunStatus

from .builders import run_record, step


def pragma(store, name):
    with store.read() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def limit_pages(store, num_pages):
    """From now on the database takes no more than so many pages: the disk is full."""
    store._engine.dispose()
    event.listen(
        store._engine, "connect", lambda connection, _: connection.execute(f"PRAGMA max_page_count={num_pages}")
    )


def test_sqlite_is_set_for_many_readers_and_waiting_writers(store):
    assert pragma(store, "journal_mode") == "wal"
    assert pragma(store, "synchronous") == 1  # NORMAL
    assert pragma(store, "busy_timeout") == 5000
    assert pragma(store, "foreign_keys") == 1


def test_a_store_opens_by_path_by_text_and_by_url(tmp_path):
    path = tmp_path / "a" / "rlf.db"
    for where in (path, str(path), f"sqlite:///{path}"):
        with open_store(where) as store:
            assert store.place == str(path)
    with open_store(path, create=False) as store:
        assert Reader(store).list_runs() == []


def test_a_reading_command_makes_no_database(path):
    with pytest.raises(RlfError, match="no lineage yet"):
        open_store(path, create=False)
    assert not path.parent.exists()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello " * 1000)
    with pytest.raises(RlfError, match=r"notes\.txt: the file is not a SQLite database"):
        open_store(path)
    assert path.read_text() == "hello " * 1000


def test_a_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("create table runs (distance real)")
    connection.close()
    with pytest.raises(RlfError, match="belongs to another program: it holds runs"):
        open_store(path)


def test_a_file_that_became_another_programs_since_it_was_closed_is_refused_and_left_as_it_is(path, tmp_path):
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("create table miles (distance real)")
    connection.close()
    theirs = (tmp_path / "other.db").read_bytes()
    with open_store(path), open_store(path):
        pass  # counted twice, and no more when both are closed
    path.write_bytes(theirs)
    with pytest.raises(RlfError, match="belongs to another program: it holds miles"):
        open_store(path)
    assert path.read_bytes() == theirs, "not even how it is journalled is changed"


def test_a_newer_schema_is_refused(path):
    with open_store(path) as store, store.write() as connection:
        connection.execute(text("update rlf_version set version_num = '9999'"))
    with pytest.raises(RlfError, match=r"schema 9999 is newer .* Upgrade rlf"):
        open_store(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RlfError, match="the folder cannot be made: "):
        open_store(tmp_path / "file" / "runs" / "rlf.db")


def test_a_folder_in_place_of_the_file_is_named(tmp_path):
    with pytest.raises(RlfError, match="is a folder; expected"):
        open_store(tmp_path)


@pytest.mark.skipif(os.getuid() == 0 and not shutil.which("setpriv"), reason="nothing is forbidden to root")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    program = f"from rlf.lineage.store import open_store; open_store({str(folder / 'rlf.db')!r})"
    command = [sys.executable, "-c", program]
    if os.getuid() == 0:
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "RunError" in done.stderr
    assert "cannot be opened" in done.stderr


@pytest.mark.parametrize("where", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(where):
    with pytest.raises(RlfError, match="expected a file"):
        open_store(where)


def test_an_unknown_database_is_the_users_fault_and_keeps_its_password_secret():
    with pytest.raises(RlfError, match="no driver for this database") as caught:
        open_store("nosuch://user:hunter22@host/name")
    assert "hunter22" not in str(caught.value)
    with pytest.raises(RlfError, match="is not a SQLAlchemy URL"):
        open_store("://")


@pytest.mark.parametrize("sign", store_module._FIXES)
def test_what_sqlite_refuses_is_reported_with_its_fix(store, sign):
    words = f"{sign}: 13"
    with pytest.raises(RlfError, match=rf"rlf\.db: .*\. .* \({words}\)"), store.read():
        raise OperationalError("select 1", {}, sqlite3.OperationalError(words))


def test_a_damaged_database_is_named(path, store, run_id):
    with Recorder(store, run_id) as recorder:
        recorder(step(1, 32))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40000)
    with pytest.raises(RunError, match="the database is damaged"):
        open_store(path)


def test_opening_to_read_waits_for_no_writer(store, path, run_id):
    with store.write(), open_store(path) as other:
        assert Reader(other).get_run("latest").record.id == run_id


def test_a_server_that_fails_is_named(store):
    refused = OperationalError("select 1", {}, ConnectionError("connection refused"))
    with pytest.raises(RunError, match=r"rlf\.db: the database server fails \(connection refused\)"), store.read():
        raise refused


def test_a_fault_of_our_own_sql_keeps_its_traceback(store):
    with pytest.raises(OperationalError, match="no such table"), store.read() as connection:
        connection.exec_driver_sql("select * from nowhere")


@pytest.mark.parametrize(
    ("damage", "lack"),
    [
        ("drop table steps", r"it has no table 'steps'"),
        ("alter table tags rename column tag to tug", r"its table 'tags' has no column 'tag'"),
        ("alter table notes rename to kept", r"it has no table 'notes'"),
    ],
)
def test_a_table_or_column_that_the_file_lacks_is_damage(store, damage, lack):
    with store.write() as connection:
        connection.exec_driver_sql(damage)
    words = rf"rlf\.db: the database is damaged\. .*verify.* \({lack}\)"
    with pytest.raises(DamagedDatabase, match=words), store.read() as connection:
        connection.exec_driver_sql("select * from nowhere")
    with pytest.raises(DamagedDatabase, match=lack):
        open_store(store.place)
    open_store(store.place, create=False).close()  # for commands that show or save what is readable


def test_a_lock_held_too_long_is_named(store, path, monkeypatch):
    monkeypatch.setattr(store_module, "_BUSY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(store_module, "_PATIENCE_S", 0.05)
    with open_store(path) as other, store.write(), pytest.raises(RunError, match="another process still holds it"):
        start_run(other, run_record())


def test_a_writer_that_waits_reports_it_and_writes_once_the_lock_is_free(store, path, monkeypatch, caplog):
    monkeypatch.setattr("rlf.core.files._REPORT_S", 0.0)
    monkeypatch.setattr("rlf.lineage.store._BUSY_TIMEOUT_S", 0.01)
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")

    class FreedByTheNotice(logging.Handler):
        """Releases the lock when the wait is reported: without the notice the writer would wait for ever."""

        def emit(self, record: logging.LogRecord) -> None:
            if "another process is writing to it; waiting" in record.getMessage():
                holder.execute("COMMIT")

    notice = FreedByTheNotice()
    logging.getLogger("rlf.core.files").addHandler(notice)
    try:
        with open_store(path) as second:
            start_run(second, run_record("waited"))
    finally:
        logging.getLogger("rlf.core.files").removeHandler(notice)
        holder.close()
    assert "free again" in caplog.text
    assert Reader(store).get_run("waited").record.id == "waited"


def test_many_runs_start_at_once_in_one_new_folder(tmp_path):
    ready, run_ids = threading.Barrier(8), [f"r{number}" for number in range(8)]

    def begin(run_id: str) -> None:
        ready.wait()
        with open_lineage(tmp_path / "new" / "runs", create=True) as store, Recorder(store, run_id) as recorder:
            start_run(store, run_record(run_id))
            recorder(RunFinished(RunStatus.FINISHED, 0))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(begin, run_ids))
    with open_lineage(tmp_path / "new" / "runs") as store:
        runs = Reader(store).list_runs()
    assert sorted((run.record.id, str(run.status)) for run in runs) == [(run_id, "finished") for run_id in run_ids]


def test_a_full_disk_is_named_and_leaves_the_database_whole(store, path, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(step(1, 8))
    limit_pages(store, 150)
    recorder = Recorder(store, run_id)
    with pytest.raises(RunError, match=r"the disk is full\. Make room") as caught:
        for number in range(2, 100):
            recorder(step(number, 8))
            recorder.flush()
    with pytest.raises(RunError, match="the disk is full"):
        recorder.close()
    assert caught.value.exit_code == 1

    last = len(reader.steps(run_id))
    assert last >= 1
    assert len(reader.trajectories(run_id)) == 8 * last
    assert pragma(store, "integrity_check") == "ok"
    store.close()
    with open_store(path) as roomy:
        begin_resume(roomy, run_id, last)
        with Recorder(roomy, run_id) as recorder:
            recorder(step(last + 1, 8))
        assert len(Reader(roomy).steps(run_id)) == last + 1


def test_a_full_disk_at_the_start_leaves_nothing(tmp_path, monkeypatch):
    configure = store_module._configure_connection

    def full(connection, record):
        configure(connection, record)
        connection.execute("PRAGMA max_page_count=5")

    monkeypatch.setattr(store_module, "_configure_connection", full)
    with pytest.raises(RunError, match="the disk is full"):
        open_store(tmp_path / "rlf.db")
    monkeypatch.undo()
    with open_store(tmp_path / "rlf.db") as store:
        assert Reader(store).list_runs() == []


def test_what_another_process_records_is_seen_after_the_file_was_opened_and_closed_here_again(path):
    """Closing a file by other means than SQLite's ends the locks that SQLite has on it, for the whole process."""
    with open_store(path) as store:
        start_run(store, run_record("one"))
        reader = Reader(store)
        assert reader.num_runs() == 1
        open_store(path).close()
        for run_id in ("two", "three"):
            _start_elsewhere(path, run_id)
        assert reader.num_runs() == 3
        start_run(store, run_record("four"))
        _start_elsewhere(path, "five")
        assert reader.num_runs() == 5
    with open_store(path) as store:
        assert Reader(store).num_runs() == 5


def _start_elsewhere(path, run_id):
    """Records a run by a process of its own, which ends its use of the database in order."""
    copied = "INSERT INTO runs SELECT {} FROM runs WHERE id = 'one'"
    code = (
        "import sqlite3, sys; database = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "names = [row[1] for row in database.execute('PRAGMA table_info(runs)')];"
        "values = ', '.join(repr(sys.argv[2]) if name == 'id' else name for name in names);"
        f'database.execute("{copied}".format(values)); database.close()'
    )
    subprocess.run([sys.executable, "-c", code, path, run_id], check=True)
