"""Databases of worlds behind one interface: a copy of a SQLite seed in memory here, PostgreSQL in `postgres.py`.

A database is used by one thread at a time; `interrupt` alone may come from another one.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

from rlf.core.identity import hash_bytes
from rlf.tools.results import ToolFailure
from rlf.types import Outcome

_STEPS_PER_LOOK = 10_000
"""Steps of SQLite's machine between two looks at the clock."""


class Answer(NamedTuple):
    """Result of a statement."""

    names: list[str]
    """Of the columns; none where it is no query."""
    rows: list[list[Any]]
    num_changed: int


class Database(ABC):
    """The database of one world."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Another number where anything may have changed."""

    @abstractmethod
    def execute(self, sql: str, values: Mapping[str, Any], limit_s: float | None = None) -> Answer:
        """Runs one statement with its `:name`s. Raises ToolFailure for what the data's own rules refuse."""

    @abstractmethod
    def tables(self) -> list[str]:
        """The names of the tables, sorted."""

    def rows_of(self, table: str) -> list[list[Any]]:
        """All rows of a table in an order that their content decides."""
        quoted = table.replace('"', '""')
        found = self.execute(f'SELECT * FROM "{quoted}"', {}).rows
        return sorted(found, key=lambda row: json.dumps(row, ensure_ascii=False))

    def serialize(self) -> bytes | None:
        """The whole database; None if only its statements can restore it."""
        return None

    @abstractmethod
    def find_misfit(self, sql: str, names: list[str]) -> str | None:
        """Why a statement with these names cannot run; None if no reason is known."""

    @abstractmethod
    def interrupt(self) -> None:
        """Ends a statement that another thread runs."""

    @abstractmethod
    def close(self) -> None:
        """Releases the database."""


class Seed(Protocol):
    """The initial content of worlds' databases."""

    def make(self) -> Database:
        """A database of its own."""
        ...

    def close(self) -> None:
        """Releases what all worlds share."""
        ...


class SqliteSeed:
    """A SQLite file as bytes. A `Seed`."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def make(self) -> Database:
        """A copy in memory."""
        return SqliteDatabase(self._content)

    def close(self) -> None:
        """Holds nothing."""


class SqliteDatabase(Database):
    """A SQLite database in memory."""

    def __init__(self, content: bytes) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.deserialize(content)
        self._connection.text_factory = lambda text: text.decode(errors="replace")  # one bad value fails no other

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._connection.total_changes

    def execute(self, sql: str, values: Mapping[str, Any], limit_s: float | None = None) -> Answer:
        """Runs one statement. SQLite itself stops at the deadline."""
        try:
            with _limit_statements(self._connection, limit_s):
                cursor = self._connection.execute(sql, _bind_values(values))
                names = [column[0] for column in cursor.description or ()]
                rows = [[_show_value(value) for value in row] for row in cursor]
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as fault:
            raise ToolFailure(Outcome.TOOL_ERROR, str(fault)) from fault
        return Answer(names, rows, max(cursor.rowcount, 0))

    def tables(self) -> list[str]:
        """The names of the tables, sorted."""
        found = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        return [row[0] for row in self.execute(found, {}).rows]

    def serialize(self) -> bytes | None:
        """The whole of it."""
        return self._connection.serialize()

    def find_misfit(self, sql: str, names: list[str]) -> str | None:
        """Has SQLite read the statement."""
        try:
            self._connection.execute(f"EXPLAIN {sql}", dict.fromkeys(names))
        except sqlite3.Error as fault:
            return str(fault)
        return None

    def interrupt(self) -> None:
        """Ends a statement that another thread runs."""
        self._connection.interrupt()

    def close(self) -> None:
        """Frees the memory."""
        self._connection.close()


def read_sqlite(database: str) -> bytes:
    """A seed as the bytes of a SQLite file. Raises OSError or sqlite3.Error."""
    file = Path(database)
    with closing(sqlite3.connect(":memory:")) as connection:
        if file.suffix == ".sql":
            connection.executescript(file.read_text(encoding="utf-8"))
        else:
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as source:
                source.backup(connection)
        return connection.serialize()


def _bind_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as databases take them: lists and mappings as JSON."""
    plain = (str, int, float, bytes, type(None))
    return {name: value if isinstance(value, plain) else json.dumps(value) for name, value in values.items()}


def _show_value(value: Any) -> Any:
    return f"sha256:{hash_bytes(value)}" if isinstance(value, bytes) else value


@contextmanager
def _limit_statements(connection: sqlite3.Connection, limit_s: float | None) -> Iterator[None]:
    """Has SQLite give up when the time of a step is over."""
    if limit_s is None:
        yield
        return
    end = monotonic() + limit_s
    connection.set_progress_handler(lambda: monotonic() > end, _STEPS_PER_LOOK)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
