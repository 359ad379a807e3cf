"""Whether a row of the lineage holds what its table says: types, JSON, words of a fixed set, contents by their hash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import EnumMeta
from hashlib import sha256
from typing import Any

from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, String, Table

from rlf.core.files import is_run_id
from rlf.lineage import tables
from rlf.lineage.blobs import decompress
from rlf.lineage.payload import decode
from rlf.lineage.records import HIDDEN
from rlf.types import FailureClass, Outcome, RunStatus, ScoreState, StopReason

_JSON = {
    "runs": ("plan", "host", "packages"),
    "steps": ("metrics",),
    "evaluations": ("metrics",),
    "trajectories": ("gold",),
    "tool_calls": ("arguments", "attempts", "usage", "structured", "images", "inner"),
    "costs": ("usage",),
    "scores": ("turn_values", "usage"),
    "events": ("data",),
}
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
    conditions += [
        f"{_quote(name)} IS NOT NULL AND NOT json_valid({_quote(name)})" for name in _JSON.get(table.name, ())
    ]
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
        for name in _JSON.get(table.name, ()):
            if row.get(name) is not None:
                json.loads(row[name])
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
    if table is tables.blobs and sha256(decompress(row["data"])).hexdigest() != row["sha256"]:
        return "its content does not match its hash"
    if table is tables.payloads:
        decode(row["data"])
    return None
