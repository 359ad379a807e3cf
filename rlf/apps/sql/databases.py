"""Databases of worlds behind one interface: a copy of a SQLite seed in memory here, and PostgreSQL.

A database is used by one thread at a time; `interrupt` alone may come from another one.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias
from uuid import uuid4

from rlf.core import RlfError
from rlf.core.identity import hash_bytes
from rlf.core.process import usable_cores
from rlf.sandbox.fork_servers import WarmServer
from rlf.sandbox.launch import Launch, find_packages, sql_question
from rlf.sandbox.spec import Execution, Level, SandboxLimits, SqlRequest
from rlf.tools.results import ToolFailure
from rlf.types import Outcome

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_STEPS_PER_LOOK = 10_000
"""Steps of SQLite's machine between two looks at the clock."""


class StatementResult(NamedTuple):
    """Result of a statement."""

    names: list[str]
    """Of the columns; none where it is no query."""
    rows: list[list[Any]]
    num_changed: int


class SqliteSeed:
    """A SQLite file as bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def make(self) -> SqliteDatabase:
        """A copy in memory."""
        return SqliteDatabase(self._content)

    def close(self) -> None:
        """Holds nothing."""


class SqliteDatabase:
    """A SQLite database in memory."""

    def __init__(self, content: bytes) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.deserialize(content)
        self._connection.text_factory = lambda text: text.decode(errors="replace")  # one bad value fails no other

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._connection.total_changes

    def execute(self, sql: str, values: Mapping[str, Any], limit_s: float | None = None) -> StatementResult:
        """Runs one statement with its `:name`s, which SQLite itself stops at the deadline.

        Raises:
            ToolFailure: the data's own rules refuse it.
        """
        try:
            with _limit_statements(self._connection, limit_s):
                cursor = self._connection.execute(sql, _bind_values(values))
                names = [column[0] for column in cursor.description or ()]
                rows = [[f"sha256:{hash_bytes(v)}" if isinstance(v, bytes) else v for v in row] for row in cursor]
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as fault:
            raise ToolFailure(Outcome.TOOL_ERROR, str(fault)) from fault
        return StatementResult(names, rows, max(cursor.rowcount, 0))

    def tables(self) -> list[str]:
        """The names of the tables, sorted."""
        found = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        return [row[0] for row in self.execute(found, {}).rows]

    def serialize(self) -> bytes:
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
    return {k: json.dumps(v) if isinstance(v, dict | list | tuple) else v for k, v in values.items()}


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


# PostgreSQL for worlds: each has a schema, made by a script, or a database, copied from a template.
#
# The pool's own connection holds an advisory lock for each world. It ends with the process, however that ends: what a
# killed run left is then nobody's, and the next one to open the server drops it.

_PREFIX = "rlf_world_"
_GRACE_S = 1.0
"""Time beyond a step's own after which the server ends a statement that nobody waits for."""
_READ_BY_EXPLAIN = ("select", "insert", "update", "delete", "with", "values", "merge")


class PostgresSeed:
    """A server, and the initial content of each world's part."""

    def __init__(self, server: str, script: Path | None, template: str | None, limit_s: float) -> None:
        """Connects, and drops what killed runs left.

        Args:
            script: makes the tables of a schema; or `template`, a database to copy.
            limit_s: time of one statement.

        Raises:
            RlfError: there is no driver, or no server.
        """
        self._script = None if script is None else script.read_text(encoding="utf-8")
        self._template, self._limit_s = template, limit_s
        self._server = server.replace("postgresql://", "postgresql+psycopg://", 1)
        self._lock = threading.RLock()
        """Held while the shared connection is used."""
        self._names = set[str]()
        """Schemas or databases of worlds that are not closed."""
        self._admin = _connect(self._server)
        listed = "SELECT nspname FROM pg_namespace" if self._template is None else "SELECT datname FROM pg_database"
        for (name,) in self._admin.exec_driver_sql(listed).all():
            if name.startswith(_PREFIX):
                free = self._admin.exec_driver_sql(f"SELECT pg_try_advisory_lock(hashtext('{name}'))").scalar_one()
                if free:
                    self._drop(name)

    @property
    def num_connections(self) -> int:
        """Connections that the server has for worlds, two being left to others."""
        settings = (
            "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        )
        return int(self._admin.exec_driver_sql(settings).scalar_one()) - 2

    def make(self) -> PostgresDatabase:
        """A schema or database of its own."""
        name = _PREFIX + uuid4().hex
        quoted = (self._template or "").replace('"', '""')
        created = f"SCHEMA {name}" if self._template is None else f'DATABASE {name} TEMPLATE "{quoted}"'
        with self._lock:
            self._admin.exec_driver_sql(f"SELECT pg_advisory_lock(hashtext('{name}'))")
            self._names.add(name)
            self._admin.exec_driver_sql(f"CREATE {created}")
        try:
            return self._open(name)
        except BaseException:
            self._drop(name)
            raise

    def _open(self, name: str) -> PostgresDatabase:
        if self._template is not None:
            return PostgresDatabase(_connect(self._server, name), self._limit_s, lambda: self._drop(name))
        connection = _connect(self._server)
        try:
            connection.exec_driver_sql(f"SET search_path TO {name}")
            if self._script is not None:
                _driver(connection).execute(self._script)
        except BaseException:
            _disconnect(connection)
            raise
        return PostgresDatabase(connection, self._limit_s, lambda: self._drop(name))

    def _drop(self, name: str) -> None:
        dropped = f"SCHEMA IF EXISTS {name} CASCADE"
        if self._template is not None:
            dropped = f"DATABASE IF EXISTS {name} WITH (FORCE)"
        with self._lock:
            if not self._admin.closed:
                self._admin.exec_driver_sql(f"DROP {dropped}")
                self._admin.exec_driver_sql(f"SELECT pg_advisory_unlock(hashtext('{name}'))")
                self._names.discard(name)

    def close(self) -> None:
        """Drops the results of abandoned threads, and ends the shared connection."""
        with self._lock:
            for name in list(self._names):
                self._drop(name)
            _disconnect(self._admin)


class PostgresDatabase:
    """One connection, whose tables no other world sees."""

    def __init__(self, connection: Connection, limit_s: float, drop: Any) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        self._connection, self._drop, self._faults = connection, drop, SQLAlchemyError
        self._lock = threading.Lock()
        """Held while a statement runs."""
        self._num_executed = 0
        connection.exec_driver_sql(f"SET statement_timeout TO {round((limit_s + _GRACE_S) * 1000)}")

    @property
    def version(self) -> int:
        """The number of statements so far."""
        return self._num_executed

    def execute(self, sql: str, values: Mapping[str, Any], limit_s: float | None = None) -> StatementResult:
        """Runs one statement, which the server ends at its time."""
        from sqlalchemy import text
        from sqlalchemy.exc import DataError, IntegrityError

        with self._lock:
            self._num_executed += not sql.startswith('SELECT * FROM "')
            statement = text(sql)
            bound = {name: one for name, one in _bind_values(values).items() if name in statement._bindparams}
            try:
                result = self._connection.execute(statement, bound)
            except (IntegrityError, DataError) as fault:
                raise ToolFailure(Outcome.TOOL_ERROR, _first_line(fault)) from fault
            except self._faults as fault:
                raise RuntimeError(_first_line(fault)) from fault
            if not result.returns_rows:
                return StatementResult([], [], max(result.rowcount, 0))
            return StatementResult(list(result.keys()), [[*map(_show_value, row)] for row in result], 0)

    def tables(self) -> list[str]:
        """The names of the tables, sorted."""
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return sorted(row[0] for row in self.execute(listed, {}).rows)

    def serialize(self) -> None:
        """Nothing: its statements alone can restore it."""

    def find_misfit(self, sql: str, names: list[str]) -> str | None:
        """Has PostgreSQL plan the statement, where it is one that can be planned."""
        if not sql.lstrip().lower().startswith(_READ_BY_EXPLAIN):
            return None
        try:
            self.execute(f"EXPLAIN {sql}", dict.fromkeys(names))
        except (RuntimeError, ToolFailure) as fault:
            return str(fault)
        return None

    def interrupt(self) -> None:
        """Ends a statement that another thread runs."""
        with suppress(Exception):  # a connection that is gone runs none
            _driver(self._connection).cancel()

    def close(self) -> None:
        """Drops the world's part, and ends the connection."""
        with self._lock:
            _disconnect(self._connection)
        self._drop()


Database: TypeAlias = SqliteDatabase | PostgresDatabase
"""The database of one world."""
Seed: TypeAlias = SqliteSeed | PostgresSeed
"""The initial content of worlds' databases."""


def rows_of(database: Database, table: str) -> list[list[Any]]:
    """All rows of a table in an order that their content decides."""
    quoted = table.replace('"', '""')
    found = database.execute(f'SELECT * FROM "{quoted}"', {}).rows
    return sorted(found, key=lambda row: json.dumps(row, ensure_ascii=False))


def _connect(server: str, database: str | None = None) -> Connection:
    """A connection on which every statement is a transaction. Raises RlfError."""
    try:
        from sqlalchemy import create_engine, make_url
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.pool import NullPool

        url = make_url(server)
        place = url if database is None else url.set(database=database)
        engine: Engine = create_engine(place, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        return engine.connect()
    except ImportError as fault:
        raise RlfError("env.server: the driver of PostgreSQL is missing. Run `pip install 'rlf[postgres]'`.") from fault
    except SQLAlchemyError as fault:
        shown = url.render_as_string(hide_password=True)
        raise RlfError(f"env.server: {shown} cannot be reached: {_first_line(fault)}.") from fault


def _disconnect(connection: Connection) -> None:
    with suppress(Exception):  # it may be gone already
        connection.close()


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _first_line(fault: Exception) -> str:
    return str(getattr(fault, "orig", fault)).strip().partition("\n")[0]


def _show_value(value: Any) -> Any:
    """A value as JSON has it; of others their text."""
    if isinstance(value, bytes | memoryview):
        return f"sha256:{hash_bytes(bytes(value))}"
    return value if isinstance(value, str | int | float | bool | dict | list | None) else str(value)


_DRIVER = ("sqlalchemy", "psycopg", "psycopg-binary")
# Its processes mostly wait for the database.
_CALLS_PER_CORE_POSTGRES = 8
_REPORTING_S = 1.0
"""Time beyond the database's own to report that its time was up."""


class PostgresReader:
    """Runs statements of one database, each in a process that is killed at its time.

    No code of a model runs here, only its SQL, in the database: what that may reach is up to the role of the URL, which
    should be one that may only read. The process needs the network, so it is held by limits alone and says level
    `process`.
    """

    level = Level.PROCESS

    def __init__(self, url: str, limits: SandboxLimits) -> None:
        """Raises RlfError where the driver is not installed (`pip install 'rlf[postgres]'`)."""
        self._url = url
        self._limits = limits
        self._warm = WarmServer(Launch(Level.PROCESS, find_packages(_DRIVER), ()))
        self._permits = asyncio.Semaphore(_CALLS_PER_CORE_POSTGRES * usable_cores())

    async def __aenter__(self) -> Self:
        """Starts the server; the database is first asked at the first call."""
        await self._warm.get()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._warm.close()

    async def sql(self, request: SqlRequest) -> Execution:
        """Runs one statement in a transaction that can only read."""
        limits = request.limits or self._limits
        question = sql_question("postgres", self._url, request, limits.wall_s)
        held_to = limits.model_copy(update={"wall_s": limits.wall_s + _REPORTING_S})
        async with self._permits:
            return await self._warm.once(question, held_to)
