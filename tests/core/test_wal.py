"""SQLite files that many processes share."""

import sqlite3

from rlf.core.wal import use_wal


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
