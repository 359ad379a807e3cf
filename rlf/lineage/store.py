"""The database that holds the lineage: opening it, and the two ways of using it, `read` and `write`.

SQLite runs in WAL mode, so readers never wait; a writer takes its lock when it begins (BEGIN IMMEDIATE) and so waits in
line, for minutes and with a notice, instead of failing half-way. What the user can fix leaves here as an RlfError.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, Insert, create_engine, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError

from rlf.core import RlfError, RunError
from rlf.core.files import can_write, use_wal, wait_while_busy
from rlf.core.redact import Redactor
from rlf.lineage.lease import Lease, LeaseLost
from rlf.lineage.migrate import VERSION_TABLE, foreign_words, is_current, upgrade
from rlf.lineage.tables import metadata

FileId = tuple[int, int]
"""Device and inode."""
_BUSY_TIMEOUT_S = 5.0
"""Time for which SQLite waits for another writer at once."""
_PATIENCE_S = 600.0
"""Time for which a writer waits for another one in all."""
_WRITES = "rlf_writes"
"""Execution option of the connections that begin with a lock."""
_num_stores: Counter[FileId] = Counter()
"""Open stores of this process by file. While there is one, the file is opened by SQLite alone: when a process closes a
file, all its locks on it end, and another process then removes the `-wal` that this one still reads and writes."""
_counting = threading.Lock()


class DamagedDatabase(RunError):
    """The database is there and SQLite cannot read it."""


class NoDatabase(RlfError):
    """The file is not a SQLite database, or its header is damaged."""


_TO_SAVE = "the database is damaged. `rlf runs verify` lists what is readable, `rlf runs salvage` copies it."
_FIXES: dict[str, tuple[type[RlfError], str]] = {
    "disk is full": (
        RunError,
        "the disk is full. Make room, then continue with `rlf resume`: what was written is kept.",
    ),
    "file is not a database": (
        NoDatabase,
        "the file is not a SQLite database, or its header is damaged. Name another path; of a lineage, `rlf runs "
        "salvage` saves what is readable.",
    ),
    "malformed": (DamagedDatabase, _TO_SAVE),
    "unsupported file format": (DamagedDatabase, _TO_SAVE),
    "Could not decode": (DamagedDatabase, _TO_SAVE),
    "readonly database": (RunError, "the database cannot be written. Allow writing to the file and its folder."),
    "unable to open database": (
        RunError,
        "the database cannot be opened. Name a file in a folder that can be written.",
    ),
    "disk I/O error": (
        RunError,
        "the disk fails or is full, or a file reached the size that this process may write (`ulimit -f`). Nothing that "
        "was recorded is lost: continue with `rlf resume`.",
    ),
    "database is locked": (
        RunError,
        f"another process still holds it after {_PATIENCE_S / 60:g} minutes. `lsof FILE` names it; wait for it or end "
        "it, then try again.",
    ),
}
"""By SQLite's words: the error's class, what happened and what to do."""


class Store:
    """An open lineage database at the newest schema. Close it, or use it as a context manager."""

    def __init__(
        self, engine: Engine, redactor: Redactor, *, read_only: bool = False, file_id: FileId | None = None
    ) -> None:
        self.place = _show_place(engine.url)
        self.read_only = read_only
        sqlite = engine.url.get_backend_name() == "sqlite" and engine.url.database
        self.base = Path(engine.url.database or "").parent.resolve() if sqlite else None
        """The folder that relative paths in the database start at: its file's own; None for a server's database."""
        self.redactor = redactor
        self.leases: dict[str, Lease] = {}
        """Of the runs that this process writes, by id."""
        self._file = Path(self.place).absolute() if engine.dialect.name == "sqlite" else None
        self._opened: os.stat_result | None = None
        self._file_id = file_id
        """Of the file that it is counted for; None once it is closed."""
        self._engine = engine
        self._writer = engine.execution_options(**{_WRITES: True})

    def hide(self, names: Collection[str], declared: Any = None) -> None:
        """Redacts more in what is stored from now on: values of variables, and secrets of declarations."""
        self.redactor = Redactor(os.environ, names, declared)

    def relative(self, path: str | Path) -> str:
        """A path as it is stored: from the database's folder on where it lies below that, else absolute."""
        whole = Path(path).absolute()
        if self.base is not None and whole.resolve().is_relative_to(self.base):
            return whole.resolve().relative_to(self.base).as_posix()
        return str(whole)

    def absolute(self, stored: str) -> str:
        """Where a stored path is now."""
        return stored if self.base is None else str(self.base / stored)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the database, whatever others write meanwhile."""
        with _explain_failure(self.place, self._engine), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: all of it is committed at the end, or none of it.

        Raises:
            LeaseLost: the file was removed or replaced since it was opened.
        """
        with _explain_failure(self.place, self._engine), self._writer.begin() as connection:
            self._check_same_file()
            yield connection

    @property
    def lease_folder(self) -> Path | None:
        """Where the lock files of running runs are; None where the database is a server."""
        return None if self._file is None else self._file.with_name(f"{self._file.name}-leases")

    @property
    def index_file(self) -> Path | None:
        """The index of words beside the database; None where the database is a server or is only read."""
        return None if self._file is None or self.read_only else self._file.with_name(f"{self._file.name}-text")

    @contextmanager
    def holding(self, lease: Lease) -> Iterator[None]:
        """Keeps a lease until the store is closed, unless the block that records it fails."""
        try:
            yield
        except BaseException:
            lease.is_over = True
            lease.release()
            raise
        self.leases[lease.run_id] = lease

    def let_go(self, run_id: str) -> None:
        """Releases the lease of a run, if this store has it."""
        lease = self.leases.pop(run_id, None)
        if lease is not None:
            lease.release()

    def _check_same_file(self) -> None:
        """SQLite writes on into a file that was deleted, where nobody finds it."""
        if self._file is None:
            return
        try:
            found = self._file.stat()
        except OSError:
            found = None
        self._opened = self._opened or found
        if found is None or self._opened is None or not os.path.samestat(found, self._opened):
            raise LeaseLost(
                f"{self.place}: the lineage was removed or replaced while this process used it, and nothing more can "
                "be recorded. Leave the runs folder in place until its runs have ended.",
                is_taken_over=False,
            )

    def drop_index(self) -> None:
        """Removes the index of words, which still has deleted texts; the next search makes it again."""
        if self.index_file is not None:
            self.index_file.unlink(missing_ok=True)

    def compact(self) -> None:
        """Returns deleted space to the disk, if the database is a file of its own."""
        if self._engine.dialect.name == "sqlite":
            with _explain_failure(self.place, self._engine), self._engine.connect() as connection:
                connection.connection.dbapi_connection.execute("VACUUM")  # type: ignore[union-attr]  # it is open

    def close(self) -> None:
        """Closes every connection and releases every lease."""
        for run_id in list(self.leases):
            self.let_go(run_id)
        self._engine.dispose()
        with _counting:
            if self._file_id is not None:
                _num_stores[self._file_id] -= 1
                self._file_id = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(where: str | Path, *, create: bool = True, read_only: bool = False) -> Store:
    """Opens the lineage at a file path or SQLAlchemy URL and brings its schema up to date.

    A SQLite file that cannot be written is opened to be read.

    Args:
        where: A path, or anything with `://`.
        create: False raises RlfError where there is no SQLite file yet, for commands that only read.
        read_only: Whether a SQLite file is not to be changed in any way, its schema included.

    Raises:
        RlfError: There is no such database, it is another program's, or of a rlf whose schema this one does not read.
        RunError: Its schema is older than this rlf's, and it cannot be written.
    """
    url, file_id = _parse_url(where), None
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        read_only = read_only or (path.is_file() and not (can_write(path) and can_write(path.parent)))
        _check_file(url, create=create)
        file_id = _count_store(path)
    engine = _make_engine(url, read_only=read_only)
    store = Store(engine, Redactor(os.environ), read_only=read_only, file_id=file_id)
    try:
        _bring_up_to_date(store)
        if create and (lack := _find_lack(engine)) is not None:  # before anything is played that it could not keep
            raise DamagedDatabase(f"{store.place}: {_TO_SAVE} ({lack})")
    except DatabaseError as error:
        store.close()
        raise DamagedDatabase(f"{store.place}: {_TO_SAVE} ({error.orig})") from error
    except BaseException:
        store.close()
        raise
    return store


def _bring_up_to_date(store: Store) -> None:
    """Asks first and locks then, so that opening to read waits for no writer."""
    with store.read() as connection:
        current = is_current(connection, store.place)
    if not current and store.read_only:
        raise RunError(
            f"{store.place}: the database has the schema of an older rlf and is read-only here. `rlf runs list` "
            "migrates it where it is writable; else copy the runs folder to such a place, and name that with `--runs`."
        )
    if not current:
        with store.write() as connection:
            upgrade(connection, store.place)


def _parse_url(where: str | Path) -> URL:
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(where))
    try:
        return make_url(where)
    except ArgumentError as error:
        raise RlfError(f"lineage: {where.partition('://')[0]}://... is not a SQLAlchemy URL. {_URL_FORM}") from error


_URL_FORM = "Write e.g. `sqlite:///runs/rlf.db` or `postgresql+psycopg://user@host/name`."


def _show_place(url: URL) -> str:
    file = url.database if url.get_backend_name() == "sqlite" else None
    return file or url.render_as_string(hide_password=True)


def _check_file(url: URL, *, create: bool) -> None:
    if not url.database or ":memory:" in url.database:
        raise RlfError(f"lineage: got {url}; expected a file, since several processes read it. {_URL_FORM}")
    path = Path(url.database)
    if path.is_dir():
        raise RlfError(f"{path}: is a folder; expected the database's file. Name the file in it, or another path.")
    if path.parent.exists() and not path.parent.is_dir():
        raise RlfError(f"{path.parent}: is a file; expected a runs folder. Name a folder with `--runs`.")
    if not create and not path.is_file():
        if path.suffix != ".db":
            raise RlfError(f"{path}: no such file. Name a database of runs, or a file that `rlf runs export` wrote.")
        advice = "Start a run with `rlf run SPEC`, or name another folder with `--runs`."
        raise RlfError(f"{path}: no lineage yet. {advice}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RlfError(f"{path.parent}: the folder cannot be made: {error.strerror}. Choose one that can.") from error


def _count_store(path: Path) -> FileId | None:
    """Counts a store of a file, which is made if need be; None where it cannot be, which SQLite will explain.

    Raises RlfError for another program's file.
    """
    with _counting:
        with suppress(OSError):
            path.touch(exist_ok=False)
        try:
            found = path.stat()
        except OSError:
            return None
        file_id = found.st_dev, found.st_ino
        if not _num_stores[file_id]:
            _refuse_foreign(path)
        _num_stores[file_id] += 1
        return file_id


def _refuse_foreign(path: Path) -> None:
    """Raises RlfError where a file is another program's: nothing of it is changed, not even how it is journalled."""
    if not path.is_file() or path.stat().st_size == 0 or _is_wal(path):
        return  # `upgrade` looks at files in WAL mode, which opening does not change
    from rlf.lineage.read_only import names_of_tables

    with _explain_failure(str(path)), _as_sqlalchemy_error():
        names = names_of_tables(path)
    if names and VERSION_TABLE not in names:
        raise RlfError(foreign_words(str(path), names))


def _is_wal(path: Path) -> bool:
    """Whether the header of a SQLite file says that it is journalled ahead."""
    with path.open("rb") as file:
        return file.read(20)[18:20] == b"\x02\x02"


@contextmanager
def _as_sqlalchemy_error() -> Iterator[None]:
    """Errors of SQLite as those that come through SQLAlchemy."""
    try:
        yield
    except sqlite3.Error as error:
        raise DatabaseError(None, None, error) from error


def _make_engine(url: URL, *, read_only: bool) -> Engine:
    sqlite = url.get_backend_name() == "sqlite"
    if sqlite and read_only:
        from rlf.lineage.read_only import connect_read_only

        path = Path(url.database or "")
        engine = create_engine(url, creator=lambda: connect_read_only(path))
        event.listen(engine, "connect", _read_only)
        event.listen(engine, "begin", _begin_transaction)
        return engine
    try:
        # A connection is tried before it is used again: the server may have been restarted since.
        engine = create_engine(
            url, connect_args={"timeout": _BUSY_TIMEOUT_S} if sqlite else {}, pool_pre_ping=not sqlite
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise RlfError(f"{_show_place(url)}: no driver for this database: {error}. Install it with pip.") from error
    if sqlite:
        event.listen(engine, "connect", _configure_connection)
        event.listen(engine, "begin", _begin_transaction)
    return engine


def _configure_connection(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = (
        None  # `_begin_transaction` opens transactions; the driver's own begin would take no lock.
    )
    use_wal(connection, _PATIENCE_S)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _read_only(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None


def _begin_transaction(connection: Connection) -> None:
    if not connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql("BEGIN")
        return
    driver = connection.connection.dbapi_connection
    assert isinstance(driver, sqlite3.Connection), f"begin on {driver!r}"
    wait_while_busy(driver, lambda: connection.exec_driver_sql("BEGIN IMMEDIATE"), _PATIENCE_S)


@contextmanager
def _explain_failure(place: str, engine: Engine | None = None) -> Iterator[None]:
    """Args: engine: that of a lineage at the newest schema, which is looked at where a statement fails."""
    try:
        yield
    except DatabaseError as error:
        words = str(error.orig)
        for sign, (kind, fix) in _FIXES.items():
            if sign in words:
                raise kind(f"{place}: {fix} ({words})") from error
        if isinstance(error, OperationalError) and not isinstance(error.orig, sqlite3.Error):
            raise RunError(f"{place}: the database server fails ({words}). Check that it runs and has room.") from error
        if engine is not None and (lack := _find_lack(engine)) is not None:
            raise DamagedDatabase(f"{place}: {_TO_SAVE} ({lack})") from error
        raise


def _find_lack(engine: Engine) -> str | None:
    """The first table or column that a database lacks; None where it has them all, and so our statement is wrong."""
    with suppress(DatabaseError), engine.connect() as connection:
        found = inspect(connection)
        names = set(found.get_table_names())  # without views, which can stand in no table's place
        for table in metadata.sorted_tables:
            if table.name not in names:
                return f"it has no table {table.name!r}"
            known = {column["name"] for column in found.get_columns(table.name)}
            if lacking := [column.name for column in table.columns if column.name not in known]:
                return f"its table {table.name!r} has no column {lacking[0]!r}"
    return None


# Many rows in one statement, without SQLAlchemy's work for each of them.

_MANY = 32
"""Rows from which on compiling a statement again costs less than SQLAlchemy's work for each row."""
_BATCH = 500
"""Fewer than the objects after which Python looks for garbage, among all that there is at last."""


def insert_rows(
    connection: Connection, statement: Insert, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Executes an insert for each row, whose values have the order of the columns and are as the driver takes them."""
    coming = iter(rows)
    first = list(islice(coming, _BATCH))
    names = None
    if len(first) >= _MANY and len(columns) > 1:
        compiled = statement.compile(dialect=connection.dialect, column_keys=list(columns))
        names = getattr(compiled, "positiontup", None)  # None: the driver takes names
    if names is None:
        if named := [dict(zip(columns, row, strict=True)) for row in (*first, *coming)]:
            connection.execute(statement, named)
        return
    pick, text = itemgetter(*map(columns.index, names)), str(compiled)
    while first:
        connection.exec_driver_sql(text, list(map(pick, first)))
        first = list(islice(coming, _BATCH))
