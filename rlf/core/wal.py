"""SQLite files that many processes share."""

from __future__ import annotations

import sqlite3
import time


def use_wal(database: sqlite3.Connection, busy_s: float) -> None:
    """Switches a file to write-ahead logging, unless it has it.

    Where two processes switch a new file at once, SQLite tells one of them that it is busy, without its own time-out.

    Raises:
        sqlite3.OperationalError: the file is still busy after so long, or cannot be written.
    """
    latest = time.monotonic() + busy_s
    while database.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > latest:
                raise
            time.sleep(0.01)
