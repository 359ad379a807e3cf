"""The search for damage in a lineage, read once: what rows name, and whether each holds what its table says."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import EnumMeta
from functools import partial
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    Select,
    String,
    Table,
    func,
    select,
    text,
)
from sqlalchemy.exc import DatabaseError

from rlf.core.files import is_run_id
from rlf.lineage import tables
from rlf.lineage.blobs import decompress, is_whole, present
from rlf.lineage.lease import has_owner
from rlf.lineage.records import HIDDEN, IMPORTING, INTERRUPTED
from rlf.lineage.rows import PayloadReader, decode_payload, inner_blobs
from rlf.lineage.store import Store
from rlf.types import FailureClass, Outcome, RunStatus, ScoreState, StopReason

_BATCH = 500

Progress = Callable[[str], None]
"""Called with what is read now, often."""


def find_damage(store: Store, progress: Progress = lambda _: None, *, is_proven: bool = False) -> Iterator[str]:
    """Faults of the database, in words; nothing where all is well. Reads all of it once.

    Args:
        is_proven: whether all trajectories are known to be as they were written, with all that hangs on them.
    """
    with store.read() as connection:
        for look in (_check_database, partial(_check_rows, is_proven=is_proven), _check_contents, _check_sums):
            yield from _run_look(look, connection, progress)
        if not is_proven:
            yield from _run_look(_check_payloads, connection, progress)
        for run_id in cut_imports(store, connection):
            yield f"run {run_id}: its import was interrupted. Import it again, or free the space with `rlf runs gc`"


def _run_look(
    look: Callable[[Connection, Progress], Iterator[str]], connection: Connection, progress: Progress
) -> Iterator[str]:
    """Findings of one check, or that it could not finish; the others continue."""
    try:
        yield from look(connection, progress)
    except (DatabaseError, sqlite3.DatabaseError, ValueError) as error:
        words = error.orig if isinstance(error, DatabaseError) else error
        name = getattr(look, "func", look).__name__.removeprefix("_")
        yield f"the file: {name} cannot be read to the end: {words}"


def _check_database(connection: Connection, progress: Progress) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        progress("the file and its indexes")
        for line in connection.execute(text("PRAGMA integrity_check")).scalars():
            if line != "ok":
                yield f"the file: {line}"
        for row in connection.execute(text("PRAGMA foreign_key_check")):
            yield f"table {row[0]}: row {row[1]} belongs to a row of {row[2]} that is missing"


def _check_rows(connection: Connection, progress: Progress, *, is_proven: bool = False) -> Iterator[str]:
    """Rows that do not hold what their table says; contents and payloads are read by looks of their own.

    SQLite reads each row and returns those that may be damaged, which is ten times faster than to look at all in
    Python. It returns the texts too, since it does not ask whether they are UTF-8 and the driver does.
    """
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, sqlite3.Connection):
        return
    read_elsewhere = {tables.blobs, tables.payloads}
    if is_proven:
        read_elsewhere |= {tables.trajectories, *tables.OF_TRAJECTORY}
    for table in tables.metadata.sorted_tables:
        if table not in read_elsewhere:
            progress(f"table {table.name}")
            columns = [column.name for column in table.columns]
            names = ", ".join(f'"{name}"' for name in columns)
            suspect = f'SELECT {names} FROM "{table.name}"'
            try:
                deque(driver.execute(f'SELECT {joined_texts(table)} FROM "{table.name}"'), maxlen=0)
                suspect += f" WHERE {may_be_damaged(table)}"
            except sqlite3.OperationalError:
                pass  # reading them one by one names the column
            for row in driver.execute(suspect):
                fault = find_fault(table, dict(zip(columns, row, strict=True)))
                if fault is not None:
                    yield f"table {table.name}: a row is damaged: {fault}"


def _rows_of(connection: Connection, query: Select[Any]) -> Iterator[Sequence[Any]]:
    """Rows of a query without parameters, past SQLAlchemy where that is SQLite's: its rows cost more than reading."""
    driver = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        return iter(driver.execute(str(query.compile(dialect=connection.dialect))))
    return iter(connection.execution_options(yield_per=_BATCH).execute(query))


def _check_contents(connection: Connection, progress: Progress) -> Iterator[str]:
    for number, (name, data) in enumerate(_rows_of(connection, select(tables.blobs.c.sha256, tables.blobs.c.data))):
        if number % _BATCH == 0:
            progress(f"content {number:,}")
        if not is_whole(name, data):
            yield f"blob {name[:12]}: its content does not match its hash"
    named = read_named(connection) - _cut_originals(connection)
    for name in sorted(named - present(connection, named)):
        yield f"blob {name[:12]}: a row names it, but it is missing"


def _cut_originals(connection: Connection) -> set[str]:
    """Hashes of results that were too large to keep: names without a content."""
    column = tables.tool_calls.c.original_sha256
    return set(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())


def _check_payloads(connection: Connection, progress: Progress) -> Iterator[str]:
    trajectories, payloads = tables.trajectories.c, tables.payloads.c
    query = select(trajectories.trajectory_id, trajectories.run_id, trajectories.num_tokens, payloads.data)
    joined = query.join(tables.payloads, payloads.trajectory_ref == trajectories.id)
    total = connection.execute(select(func.count()).select_from(tables.payloads)).scalar_one()
    payload = PayloadReader()
    for number, (trajectory_id, run_id, num_tokens, data) in enumerate(_rows_of(connection, joined)):
        if number % _BATCH == 0:
            progress(f"trajectory {number:,} of {total:,}")
        try:
            whole = payload.num_tokens(data) == num_tokens
        except Exception:  # noqa: BLE001 - damage shows in any way
            whole = False
        if not whole:
            yield f"run {run_id}: trajectory {trajectory_id}: its tokens cannot be read"


def _check_sums(connection: Connection, _: Progress) -> Iterator[str]:
    trajectories, sums = tables.trajectories.c, tables.collections.c
    unfinished = select(tables.runs.c.id).where(tables.runs.c.status == IMPORTING)
    counted = (
        select(trajectories.run_id, trajectories.phase, trajectories.step, func.count().label("num"))
        .where(trajectories.phase != INTERRUPTED, trajectories.run_id.not_in(unfinished))
        .group_by(trajectories.run_id, trajectories.phase, trajectories.step)
        .subquery()
    )
    place = (sums.run_id == counted.c.run_id) & (sums.phase == counted.c.phase) & (sums.step == counted.c.step)
    query = select(counted, sums.num_trajectories).outerjoin(tables.collections, place)
    for row in connection.execute(query.where(counted.c.num != func.coalesce(sums.num_trajectories, -1))):
        num_trajectories = row.num_trajectories
        yield f"run {row.run_id}: {row.phase} step {row.step} has {row.num} trajectories and says {num_trajectories}"


def cut_imports(store: Store, connection: Connection) -> list[str]:
    """Runs whose import ended before all of them was there."""
    rows = connection.execute(select(tables.runs).where(tables.runs.c.status == IMPORTING))
    return [row.id for row in rows if not has_owner(row, store.lease_folder)]


def read_named(connection: Connection) -> set[str]:
    """Every content that a row refers to."""
    calls = tables.tool_calls.c
    sources = (tables.runs.c.patch_sha256, tables.files.c.text_sha256, tables.changes.c.text_sha256)
    columns = (tables.trajectories.c.task_sha256, calls.text_sha256, calls.original_sha256, *sources)
    named: set[str] = set()
    for column in columns:
        named.update(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())
    for images in connection.execute(select(calls.images).where(calls.images.is_not(None))).scalars():
        named.update(name for _, name in json.loads(images))
    for inner in connection.execute(select(calls.inner).where(calls.inner.is_not(None))).scalars():
        named.update(inner_blobs(inner))
    return named


# Whether a row of the lineage holds what its table says: types, JSON, words of a fixed set, contents by their hash.

_JSON: dict[str, dict[str, type[Any]]] = {
    "runs": dict.fromkeys(("plan", "host", "packages"), dict),
    "steps": {"metrics": dict},
    "evaluations": {"metrics": dict},
    "trajectories": {"gold": object},
    "tool_calls": {"structured": object, "arguments": dict, "usage": dict}
    | dict.fromkeys(("attempts", "images", "inner"), list),
    "costs": {"usage": dict},
    "scores": {"turn_values": list, "usage": dict},
    "events": {"data": dict},
}
_JSON_TYPES: dict[type[Any], str] = {dict: "object", list: "array"}
_WORDS: dict[tuple[str, str], Callable[[str], Any]] = {
    ("runs", "status"): lambda word: word in HIDDEN or RunStatus(word),
    ("trajectories", "stop"): StopReason,
    ("tool_calls", "outcome"): Outcome,
    ("tool_totals", "outcome"): Outcome,
    ("parse_failures", "kind"): FailureClass,
    ("scores", "state"): ScoreState,
}


def may_be_damaged(table: Table) -> str:
    """A condition of SQLite that holds for every row of a table in which `find_fault` finds a fault, and a few more."""
    conditions = ["1"] if table is tables.runs else []  # few rows, whose ids SQL has no words for
    for column in table.columns:
        name = _quote(column.name)
        there = f"{name} IS NOT NULL AND " if column.nullable else ""  # cheaper than a second word
        conditions.append(f"{there}typeof({name}) {_wrong_types(column)}")
        if isinstance(column.type, Boolean):
            conditions.append(f"{name} NOT IN (0, 1)")
    for name, kind in _JSON.get(table.name, {}).items():
        is_other = f"json_type({_quote(name)}) <> '{_JSON_TYPES[kind]}'" if kind in _JSON_TYPES else "0"
        conditions.append(f"{_quote(name)} IS NOT NULL AND iif(json_valid({_quote(name)}), {is_other}, 1)")
    for (owner, name), read in _WORDS.items():
        if owner == table.name and isinstance(read, EnumMeta):
            members: Iterable[Any] = read.__members__.values()
            words = ", ".join(f"'{word}'" for word in members)
            conditions.append(f"{_quote(name)} NOT IN ({words})")
    return " OR ".join(conditions)


def joined_texts(table: Table) -> str:
    """All texts of a row but for words of a fixed set as one, for SQLite, which decodes none of them."""
    names = [column.name for column in table.columns if isinstance(column.type, String)]
    texts = [_quote(name) for name in names if (table.name, name) not in _WORDS]
    return " || ' ' || ".join(f"ifnull({name}, '')" for name in texts) or "''"


def _quote(name: str) -> str:
    return f'"{name}"'


def _wrong_types(column: Column[Any]) -> str:
    """What SQLite's `typeof` is not for a value that a column may have."""
    if isinstance(column.type, Float):
        return "NOT IN ('real', 'integer')"
    kinds = ((LargeBinary, "blob"), (Integer, "integer"), (Boolean, "integer"))
    return f"<> '{next((word for kind, word in kinds if isinstance(column.type, kind)), 'text')}'"


def find_fault(table: Table, row: Mapping[str, Any]) -> str | None:
    """The fault of a row as SQLite has it, in words; None where it is sound."""
    for column in table.columns:
        if column.name in row and not _fits_column(column.type, row[column.name], nullable=bool(column.nullable)):
            return f"{column.name} is {str(row[column.name])[:40]!r}"
    try:
        for name, kind in _JSON.get(table.name, {}).items():
            if row.get(name) is not None and not isinstance(json.loads(row[name]), kind):
                return f"{name} is {row[name][:40]}"
        for (owner, name), read in _WORDS.items():
            if owner == table.name and row.get(name) is not None:
                read(row[name])
        return _fault_of_content(table, row)
    except Exception as error:  # noqa: BLE001 - damage shows in any way
        return f"{type(error).__name__}: {error}"[:120]


def _fits_column(kind: Any, value: Any, *, nullable: bool) -> bool:
    if value is None:
        return nullable
    if isinstance(kind, LargeBinary):
        return isinstance(value, bytes)
    if isinstance(kind, Boolean):
        return value in (0, 1)
    if isinstance(kind, Integer):
        return isinstance(value, int)
    return isinstance(value, (int, float) if isinstance(kind, Float) else str)


def _fault_of_content(table: Table, row: Mapping[str, Any]) -> str | None:
    if table is tables.runs and not is_run_id(row["id"]):
        return f"{row['id']!r} is not a run's id"
    if table is tables.runs and row["plan"] == "{}":
        return "plan is empty"
    if table is tables.blobs and sha256(decompress(row["data"])).hexdigest() != row["sha256"]:
        return "its content does not match its hash"
    if table is tables.payloads:
        decode_payload(row["data"])
    return None
