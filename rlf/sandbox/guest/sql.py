"""One query of a SQLite file or of a PostgreSQL database: reading only, and no more rows or bytes than its limits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

_REFUSED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
)
"""Those that describe the schema; every other is refused, also without a value."""
_OWN_PRAGMAS = frozenset({"data_version", "page_size"})
"""Those that SQLite's modules of full-text search ask themselves; allowed without a value."""
_SCHEMA = "sqlite_master"
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_CHANGES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_MAX_SQL_BYTES = 1_000_000


def query_sqlite(path: str, sql: str, max_rows: int, max_bytes: int) -> dict[str, Any]:
    """Runs one statement.

    Returns `outcome`, and `columns`, `rows` and `truncated`, or `error`. Blobs are described as their size.
    """
    place = f"file:{quote(path)}?mode=ro&immutable=1"
    refusals: list[str] = []
    try:
        connection = sqlite3.connect(place, uri=True, isolation_level=None)
        connection.text_factory = lambda text: text.decode(errors="replace")  # one bad value fails no other
        connection.execute("PRAGMA temp_store = MEMORY")  # what a query sorts counts as its memory
        _limit_connection(connection, max_bytes, refusals)
        return _run_query(connection, sql, max_rows, max_bytes)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, UnicodeError) as fault:
        return {"outcome": "error", "error": "; ".join([str(fault), *dict.fromkeys(refusals)])}
    except MemoryError:
        return {"outcome": "memory", "error": "the query needs more memory than it may use"}


def _limit_connection(connection: sqlite3.Connection, max_bytes: int, refusals: list[str]) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(max_bytes, _MAX_SQL_BYTES))
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MAX_SQL_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    shadows = _shadow_tables(connection)

    def authorise(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _ALLOWED:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and second not in _REFUSED_FUNCTIONS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA and (first in _PRAGMAS or (first in _OWN_PRAGMAS and second is None)):
            return sqlite3.SQLITE_OK
        # To open a virtual table, also `pragma_table_info`, SQLite declares it, and modules prepare their writes.
        # That changes nothing: the file is open for reading alone.
        if action in _CHANGES and (first in shadows or (first == _SCHEMA and action == sqlite3.SQLITE_UPDATE)):
            return sqlite3.SQLITE_OK
        refusals.append(_explain_refusal(action, first, second))
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(authorise)


def _shadow_tables(connection: sqlite3.Connection) -> frozenset[str]:
    """The tables in which virtual tables keep what they hold."""
    try:
        return frozenset(row[1] for row in connection.execute("PRAGMA table_list") if row[2] == "shadow")
    except sqlite3.Error:  # a table whose module is not here; none of its kind can be read
        return frozenset()


def _explain_refusal(action: int, first: str | None, second: str | None) -> str:
    if action == sqlite3.SQLITE_PRAGMA:
        return f"PRAGMA {first} is refused; those that describe the schema are allowed: {', '.join(sorted(_PRAGMAS))}"
    if action == sqlite3.SQLITE_FUNCTION:
        return f"the function {second} is refused"
    return "the database may only be read: SELECT, and nothing else"


def _run_query(connection: sqlite3.Connection, sql: str, max_rows: int, max_bytes: int) -> dict[str, Any]:
    cursor = connection.execute(sql)
    columns = [column[0] for column in cursor.description or ()]
    return {"outcome": "ok", "columns": columns, **read_rows(cursor, max_rows, max_bytes)}


def read_rows(found: Iterable[Iterable[Any]], max_rows: int, max_bytes: int) -> dict[str, Any]:
    """`rows` as JSON has them, as many as the limits let through, and whether they are `truncated`."""
    rows: list[list[Any]] = []
    size = 0
    for row in found:
        values = [_to_plain(value) for value in row]
        size += sum(len(value) if isinstance(value, str) else 8 for value in values)
        if len(rows) == max_rows or size > max_bytes:
            return {"rows": rows, "truncated": True}
        rows.append(values)
    return {"rows": rows, "truncated": False}


def _to_plain(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return f"<{len(bytes(value))} bytes>"
    is_number = isinstance(value, float) and value - value == 0
    return value if is_number or value is None or isinstance(value, str | bool | int) else str(value)


# One query of a PostgreSQL database, in a transaction that can only read.
#
# The transaction has taken its snapshot before the query runs, after which PostgreSQL refuses to make it writable; the
# query goes by the extended protocol, which takes one statement alone, so that none can end the transaction.


def query_postgres(url: str, sql: str, max_rows: int, max_bytes: int, timeout_s: float) -> dict[str, Any]:
    """Runs one statement; the same values as `sqlite.query`."""
    import psycopg
    from sqlalchemy.engine import make_url

    parts = make_url(url)
    place = parts.set(drivername="postgresql").render_as_string(hide_password=False)
    options = f"-c default_transaction_read_only=on -c statement_timeout={max(int(timeout_s * 1000), 1)}"
    try:
        with psycopg.connect(place, options=options, connect_timeout=max(int(timeout_s), 2)) as connection:
            connection.execute("SELECT 1")
            with connection.cursor() as cursor:
                found = read_rows(cursor.stream(sql.encode()), max_rows, max_bytes)
                return {"outcome": "ok", "columns": [column.name for column in cursor.description or ()], **found}
    except psycopg.errors.QueryCanceled:
        return {"outcome": "timeout", "error": f"no result within {timeout_s:g} s"}
    except psycopg.OperationalError as fault:
        return {"outcome": "infra", "error": str(fault).strip()}
    except (psycopg.Error, UnicodeError) as fault:
        return {"outcome": "error", "error": str(fault).strip()}
    except MemoryError:
        return {"outcome": "memory", "error": "the result needs more memory than the query may use"}
