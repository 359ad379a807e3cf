"""Values of a row by column name; a dotted one goes into mappings, lists and columns that hold JSON as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlf.core import nearest
from rlf.core.json_values import NoJsonValue, read_json
from rlf.data.rows import Row


class NotJson(ValueError):
    """A path continues inside a text that is not JSON."""


def cell(values: Mapping[str, Any], column: str) -> Any:
    """The value of a column, None where the row lacks it. A column whose own name has dots comes first.

    Raises:
        NotJson: the path leads into a text that does not hold JSON.
    """
    if column in values:
        return values[column]
    value: Any = values
    for position, key in enumerate(parts := column.split(".")):
        value = _child_at(_open_value(value, ".".join(parts[:position])), key)
    return value


def missing_column(rows: Sequence[Row], column: str) -> str | None:
    """Why no row has a column: `no column 'x' ...`; None when one has it."""
    if any(_has_column(row.values, column) for row in rows):
        return None
    parent, _, last = column.rpartition(".")
    inside, reason = _keys_inside(rows, parent) if parent else ([], "")
    if reason:
        return f"no column {column!r}: {reason}"
    if inside:
        return f"no column {column!r}{nearest(last, inside)} ({parent} has: {', '.join(inside)})."
    known = list(dict.fromkeys(name for row in rows for name in row.values))
    return f"no column {column!r}{nearest(column, known)} (columns: {', '.join(known)})."


def _has_column(values: Mapping[str, Any], column: str) -> bool:
    try:
        return column in values or cell(values, column) is not None
    except NotJson:
        return False


def _keys_inside(rows: Sequence[Row], parent: str) -> tuple[list[str], str]:
    """Keys of the first mapping that a column holds, or why it is none."""
    reason = ""
    for row in rows:
        try:
            found = _open_value(cell(row.values, parent), parent)
        except NotJson as error:
            reason = reason or str(error)
            continue
        if isinstance(found, Mapping):
            return [str(key) for key in found], ""
    return [], reason


def _child_at(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return None


def _open_value(value: Any, column: str) -> Any:
    """A text's JSON; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except NoJsonValue as error:
        raise NotJson(f"{column!r} is JSON as text, and in it: {error}") from error
    except ValueError as error:
        raise NotJson(f"{column!r} is text and not JSON, so it has no keys.") from error
