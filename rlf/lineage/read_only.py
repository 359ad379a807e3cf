"""A lineage before it is opened: whether there is one, and SQLite files that are only read.

Those stand in folders that cannot be written, or are archives, which an import must not change.
A file in WAL mode is read with its `-wal`, for which SQLite needs a `-shm` beside it. Where neither can be made, the
file is opened as one that nobody changes, which is right when there is no `-wal`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rlf.core.files import can_write

logger = logging.getLogger(__name__)


def has_lineage(runs_folder: Path) -> bool:
    """Whether there is a lineage to look for earlier runs in: that of RLF_DB, else the folder's own."""
    where = os.environ.get("RLF_DB", "").removeprefix("sqlite:///") or str(runs_folder / "rlf.db")
    return "://" in where or Path(where).is_file()


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that never writes. Warns where rows in a `-wal` file cannot be read."""
    wal = path.with_name(f"{path.name}-wal")
    has_wal = wal.exists() and wal.stat().st_size > 0
    if has_wal or can_write(path.parent):
        connection = _connect_file(path, "mode=ro")
        if not has_wal or _can_read(connection):
            return connection
        connection.close()
        logger.warning(
            "%s: its newest rows are in %s, which cannot be read in a read-only folder: they are not "
            "shown. Copy the folder to a writable place to see them.",
            path,
            wal.name,
        )
    return _connect_file(path, "immutable=1")


def names_of_tables(path: Path) -> set[str]:
    """The names of a database's tables, views and indexes. Raises sqlite3.DatabaseError for another file."""
    with closing(connect_read_only(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _connect_file(path: Path, how: str) -> sqlite3.Connection:
    # SQLAlchemy's pool hands a connection from thread to thread, one at a time.
    uri = f"file:{quote(str(path.absolute()))}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=5.0, check_same_thread=False)


def _can_read(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return False
    return True
