"""SQLite files that many processes share."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

_REPORT_S = 3.0
"""Time after which a wait is reported."""
_PAUSE_S = 0.01
_reported: set[str] = set()
"""Files whose wait some thread of this process has reported and not ended."""
_reporting = threading.Lock()


def use_wal(database: sqlite3.Connection, patience_s: float) -> None:
    """Switches a file to write-ahead logging, unless it has it.

    Where several processes switch a new file at once, SQLite reports to all but one of them that it is busy, without
    its own time-out.

    Raises:
        sqlite3.OperationalError: the file is still busy after so long, or cannot be written.
    """

    def switch() -> None:
        if database.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            database.execute("PRAGMA journal_mode = WAL")

    wait_while_busy(database, switch, patience_s)


def wait_while_busy(database: sqlite3.Connection, action: Callable[[], object], patience_s: float) -> None:
    """Tries an action until no other process is in its way, and reports a wait that takes long.

    Threads that wait for the same file at once report it once.

    Raises:
        Exception: the action's own, also that it is still in the way after so long.
    """
    started, reported = time.monotonic(), None
    try:
        while True:
            try:
                action()
                break
            except Exception as error:
                waited_s = time.monotonic() - started
                if not _is_busy(error) or waited_s > patience_s:
                    raise
            if reported is None and waited_s > _REPORT_S:
                reported = _report_wait(str(database.execute("PRAGMA database_list").fetchone()[2]), patience_s)
            time.sleep(_PAUSE_S)
        if reported is not None:
            logger.warning("%s: free again after %.0f s", reported, time.monotonic() - started)
    finally:
        if reported is not None:
            _reported.discard(reported)


def _report_wait(file: str, patience_s: float) -> str | None:
    """Reports that a file is waited for. Returns the file, or None where another thread has reported it."""
    with _reporting:
        if file in _reported:
            return None
        _reported.add(file)
    what = "another process is writing to it; waiting at most"
    logger.warning("%s: %s %g minutes", file, what, patience_s / 60)
    return file


def _is_busy(error: Exception) -> bool:
    """Whether another connection is in the way, by the driver's error or the one that SQLAlchemy makes of it."""
    error = getattr(error, "orig", None) or error
    if not isinstance(error, sqlite3.OperationalError):
        return False
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
