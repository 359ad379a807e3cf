"""SQLite files that many processes share."""

import logging
import sqlite3
import threading
from collections import Counter

from rlf.core import files as wal
from rlf.core.files import use_wal, wait_while_busy


class Contended(sqlite3.Connection):
    """A connection whose first two switches to WAL meet another process that switches too."""

    refusals = 2

    def execute(self, sql, *parameters):
        if sql == "PRAGMA journal_mode = WAL" and self.refusals:
            self.refusals -= 1
            busy = sqlite3.OperationalError("database is locked")
            busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise busy
        return super().execute(sql, *parameters)


def test_the_switch_to_wal_is_tried_again_when_another_process_switches_too(tmp_path):
    connection = sqlite3.connect(tmp_path / "rlf.db", factory=Contended)
    use_wal(connection, 5.0)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.refusals == 0
    connection.close()


def test_threads_that_wait_for_one_file_report_it_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(wal, "_REPORT_S", -1.0)  # at once
    is_free, tries = threading.Event(), Counter()

    def act():
        if not is_free.is_set():
            tries[threading.get_ident()] += 1
            if len(tries) == 3 and min(tries.values()) > 1:  # each has had its chance to report
                is_free.set()
            busy = sqlite3.OperationalError("database is locked")
            busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise busy

    def wait():
        connection = sqlite3.connect(tmp_path / "rlf.db")
        wait_while_busy(connection, act, 60.0)
        connection.close()

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            threads = [threading.Thread(target=wait) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            is_free.clear()
            tries.clear()
    assert [record.args[1].startswith("another") for record in caplog.records if "waiting" in record.getMessage()] == [
        True,
        True,
    ]
    assert sum("free again" in record.getMessage() for record in caplog.records) == 2
