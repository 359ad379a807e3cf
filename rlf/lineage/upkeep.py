"""Keeping the lineage small and sound: thinning by rule, what rows name, and faults of a row.

Thinning takes the bulk of training trajectories away (tokens, calls, scores, failures) and leaves their rows, sums and
metrics, so that every step and report stays; evaluations are never thinned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import EnumMeta
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    LargeBinary,
    String,
    Table,
    delete,
    func,
    select,
)

from rlf.core import RlfError
from rlf.core.files import is_run_id
from rlf.lineage import tables
from rlf.lineage.blobs import decompress
from rlf.lineage.chain import LinkKind, append_link
from rlf.lineage.lease import has_owner
from rlf.lineage.records import HIDDEN, IMPORTING, TRAIN
from rlf.lineage.resumed import check_stopped
from rlf.lineage.rows import decode_payload, inner_blobs
from rlf.lineage.store import Store
from rlf.types import FailureClass, Outcome, RunStatus, ScoreState, StopReason

_BATCH = 500
_KEEP = re.compile(r"(?P<rule>last|every):(?P<number>[1-9][0-9]*)|(?P<word>none|failed)")
KEEP_FORM = "`last:N` steps, `every:N` steps, `failed` (success below 1, or unscorable), or `none`"


@dataclass(frozen=True, slots=True)
class Keep:
    """Rules for the training trajectories that keep their bulk: those that any rule names."""

    last: int = 0
    """The newest so many steps."""
    every: int | None = None
    """Steps whose number this divides."""
    failed: bool = False
    """Trajectories whose success is below 1 or that could not be scored."""


def parse_keep(words: Sequence[str]) -> Keep:
    """Parses retention rules. Raises RlfError for an unknown one."""
    keep = Keep()
    for word in words:
        match = _KEEP.fullmatch(word)
        if match is None:
            raise RlfError(f"--keep: got {word!r}; expected {KEEP_FORM}. Write e.g. `--keep last:5 --keep failed`.")
        if match["rule"] == "last":
            keep = replace(keep, last=int(match["number"]))
        elif match["rule"] == "every":
            keep = replace(keep, every=int(match["number"]))
        elif match["word"] == "failed":
            keep = replace(keep, failed=True)
    return keep


def thin(store: Store, run_id: str, keep: Keep) -> int:
    """Thins a stopped run's training trajectories; returns how many.

    Raises:
        RlfError: the run is still running.
    """
    columns = tables.trajectories.c
    with store.read() as connection:
        check_stopped(store, connection, run_id)
        query = select(columns.id, columns.step, columns.k).where(*_conditions_of_thinned(connection, run_id, keep))
        rows = connection.execute(query).all()
    for start in range(0, len(rows), _BATCH):
        batch, steps = rows[start : start + _BATCH], dict[int, list[int]]()
        for row in batch:
            steps.setdefault(row.step, []).append(row.k)
        with store.write() as connection:  # a batch at a time: others write in between
            check_stopped(store, connection, run_id)
            for table in tables.OF_TRAJECTORY:
                connection.execute(delete(table).where(table.c.trajectory_ref.in_([row.id for row in batch])))
            append_link(connection, run_id, LinkKind.THINNED, {"phase": TRAIN, "steps": steps})
    if rows:
        store.drop_index()
    return len(rows)


def _conditions_of_thinned(connection: Connection, run_id: str, keep: Keep) -> Iterator[ColumnElement[bool]]:
    columns = tables.trajectories.c
    here = (columns.run_id == run_id, columns.phase == TRAIN)
    yield from here
    yield select(tables.payloads.c.trajectory_ref).where(tables.payloads.c.trajectory_ref == columns.id).exists()
    newest = connection.execute(select(func.max(columns.step)).where(*here)).scalar() or 0
    yield columns.step <= newest - keep.last
    if keep.every is not None:
        yield columns.step % keep.every != 0
    if keep.failed:
        yield columns.success >= 1.0


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
