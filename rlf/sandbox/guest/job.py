"""The work of a confined process: it reads one request after the other from its channel and answers each.

Python runs as a notebook cell: names stay, the last expression has a value, errors show the model's own lines.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import os
import random
import sqlite3
import sys
import threading
import traceback
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from . import program
from .wire import Bounds, pack, read_frame, write_all, write_head

# One query of a SQLite file or of a PostgreSQL database: reading only, and no more rows or bytes than its limits.

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
        cursor = connection.execute(sql)
        columns = [column[0] for column in cursor.description or ()]
        return {"outcome": "ok", "columns": columns, **bounded_rows(cursor, max_rows, max_bytes)}
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


def bounded_rows(found: Iterable[Iterable[Any]], max_rows: int, max_bytes: int) -> dict[str, Any]:
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
                found = bounded_rows(cursor.stream(sql.encode()), max_rows, max_bytes)
                return {"outcome": "ok", "columns": [column.name for column in cursor.description or ()], **found}
    except psycopg.errors.QueryCanceled:
        return {"outcome": "timeout", "error": f"no result within {timeout_s:g} s"}
    except psycopg.OperationalError as fault:
        return {"outcome": "infra", "error": str(fault).strip()}
    except (psycopg.Error, UnicodeError) as fault:
        return {"outcome": "error", "error": str(fault).strip()}
    except MemoryError:
        return {"outcome": "memory", "error": "the result needs more memory than the query may use"}


MAX_ERROR_CHARS = 8_000
_FIRST_NAME = "<code>"


class CellEnd(NamedTuple):
    """How a cell ended."""

    outcome: str
    """`ok`, `error` or `memory`."""
    value: str | None = None
    """`repr` of the last expression; None when the cell ends in a statement or the value is None."""
    error: str | None = None
    images: tuple[bytes, ...] = ()
    """Figures that are open at the end, as PNG."""


class Interpreter:
    """One module, kept from cell to cell."""

    def __init__(self, max_value_chars: int, module: str = "__main__") -> None:
        self._max_value_chars = max_value_chars
        self._module = types.ModuleType(module)
        self._names: list[str] = []
        self.scope: dict[str, Any] = vars(self._module)
        sys.modules[module] = self._module

    def run(self, source: str) -> CellEnd:
        """Runs one cell; whatever it raises is reported, never raised."""
        name = _FIRST_NAME if not self._names else f"<code {len(self._names) + 1}>"
        self._names.append(name)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            value = self._execute_source(source, name)
            return CellEnd(
                "ok", None if value is None else _cut_text(repr(value), self._max_value_chars), None, _take_figures()
            )
        except SystemExit as leave:
            return (
                CellEnd("ok")
                if leave.code is None or leave.code == 0
                else CellEnd("error", None, self._format_error(leave))
            )
        except MemoryError as fault:
            return CellEnd("memory", None, self._format_error(fault))
        except BaseException as fault:  # noqa: BLE001 - foreign code may raise anything
            return CellEnd("error", None, self._format_error(fault))

    def _execute_source(self, source: str, name: str) -> Any:
        tree = ast.parse(source, name)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            exec(compile(tree, name, "exec"), self.scope)
            return None
        del tree.body[-1]
        exec(compile(tree, name, "exec"), self.scope)
        return eval(compile(ast.Expression(last.value), name, "eval"), self.scope)

    def _format_error(self, fault: BaseException) -> str:
        try:
            formatted = traceback.TracebackException.from_exception(fault)
            for part in _walk_causes(formatted, set()):
                part.stack = traceback.StackSummary.from_list([f for f in part.stack if f.filename in self._names])
            return _cut_text("".join(formatted.format()).strip(), MAX_ERROR_CHARS, keep_end=True)
        except BaseException as worse:  # noqa: BLE001 - the exception's own methods are foreign code
            return f"{type(fault).__name__}: its text cannot be shown ({type(worse).__name__})"


def _walk_causes(formatted: traceback.TracebackException, seen: set[int]) -> Iterator[traceback.TracebackException]:
    if id(formatted) in seen:
        return
    seen.add(id(formatted))
    yield formatted
    for other in (formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())):
        if other is not None:
            yield from _walk_causes(other, seen)


def _cut_text(text: str, max_chars: int, *, keep_end: bool = False) -> str:
    if len(text) <= max_chars:
        return text
    return "…" + text[1 - max_chars :] if keep_end else text[: max_chars - 1] + "…"


def _take_figures() -> tuple[bytes, ...]:
    """Open figures of matplotlib, which are closed; none where the cell did not plot."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return ()
    images = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png")
        images.append(file.getvalue())
    pyplot.close("all")
    return tuple(images)


_REQUEST = Bounds(1 << 30, 1 << 30)


def serve(channel: int, *, once: bool) -> None:
    """Answers until the channel ends; after the first request where `once`."""
    random.seed(0)
    interpreter: Interpreter | None = None
    write_all(channel, pack(0, {}))
    while (frame := read_frame(lambda size: os.read(channel, size), _REQUEST)) is not None:
        head, blobs = frame.read(), list[bytes]()
        if head["job"] == "python":
            name = "program" if head.get("part") == "program" else "__main__"  # which its test imports, not starts
            interpreter = interpreter or Interpreter(head["max_value_chars"], name)
            answer, blobs = _run_cell(interpreter, head, frame.blobs, once=once)
        elif head["job"] == "sqlite":
            answer = query_sqlite(head["place"], head["query"], head["max_rows"], head["max_bytes"])
        else:
            timeout_s = head["timeout_s"]
            answer = query_postgres(head["place"], head["query"], head["max_rows"], head["max_bytes"], timeout_s)
        write_all(channel, _pack_answer(frame.number, answer, blobs, Bounds(*head["bounds"])))
        if once:
            os._exit(0)


def _pack_answer(number: int, answer: dict[str, Any], blobs: list[bytes], bounds: Bounds) -> bytes:
    """The answer, or, since rlf would read none beyond its bounds, that it goes beyond them."""
    try:
        head = write_head(answer)
        if excess := bounds.excess(head, blobs):
            return pack(number, {"outcome": "error", "error": f"what the call brings back has {excess}"})
        return pack(number, head, blobs)
    except MemoryError:
        return pack(number, {"outcome": "memory", "error": "MemoryError"})


def _run_cell(
    interpreter: Interpreter, head: dict[str, Any], blobs: Sequence[bytes], *, once: bool
) -> tuple[dict[str, Any], list[bytes]]:
    try:
        for name, content in zip(head["files"], blobs[1:], strict=True):
            place = Path(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        _set_streams(blobs[0])
        ended = _run_source(interpreter, head)
        if once:
            threading._shutdown()  # type: ignore[attr-defined]  # what a Python program does at its end
        files = _read_files(head["fetch"])
    except MemoryError:
        ended, files = CellEnd("memory", None, "MemoryError"), {}
    except OSError as fault:
        ended, files = CellEnd("error", None, f"{type(fault).__name__}: {fault}"), {}
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    report = {"outcome": ended.outcome, "value": ended.value, "error": ended.error, "files": list(files)}
    return report, [*files.values(), *ended.images]


def _run_source(interpreter: Interpreter, head: dict[str, Any]) -> CellEnd:
    """Runs a cell; a program under test until its test has ended, a test with what its program defines."""
    if head.get("part") == "test":
        try:
            interpreter.scope.update(program.names_of_program())
        except BaseException as fault:  # noqa: BLE001 - what the program says may be anything
            return CellEnd("error", None, str(fault) or type(fault).__name__)
    ended = interpreter.run(head["source"])
    if head.get("part") == "program":
        program.serve_program(interpreter.scope, ended.error)
    return ended


def _set_streams(stdin: bytes) -> None:
    file = os.open(".stdin", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    Path(".stdin").unlink()
    os.write(file, stdin)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.close(file)
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115 - it stays open
    for number, name in ((1, "stdout"), (2, "stderr")):
        binary = open(number, "wb", closefd=False)  # noqa: SIM115 - it stays open
        setattr(sys, name, io.TextIOWrapper(binary, "utf-8", "backslashreplace", line_buffering=True))


def _read_files(patterns: list[str]) -> dict[str, bytes]:
    """Regular files of the working folder that match; what a name points to elsewhere is left out."""
    found: dict[str, bytes] = {}
    for pattern in patterns:
        for place in sorted(Path().glob(pattern)):
            if place.is_file() and not place.is_symlink():
                found[place.as_posix()] = place.read_bytes()
    return found
