"""Values of a row by column name; a dotted one goes into mappings, lists and columns that hold JSON as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.core import nearest
from rlf.core.plain_json import NoJsonValue, read_json
from rlf.data.files import Row


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
    spaced = "; there are spaces around it in the file. Remove them" if column in map(str.strip, known) else ""
    return f"no column {column!r}{spaced or nearest(column, known)} (columns: {', '.join(known)})."


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


# The tools of one row: a list of names, or of function descriptions, as text or as a list.


def tools_of_row(
    value: Any, declared: Sequence[str] | None, undeclared: Counter[str] | None = None
) -> tuple[str, ...] | None:
    """Names of the tools that a row's trajectories may use; None, where the row says nothing, for all.

    A name must be a declared tool's. Function descriptions (OpenAI's form, FTRL's rows) of tools that the spec does not
    declare are counted, and left out of the names.

    Args:
        declared: the spec's tools; None takes any name.
        undeclared: counts them by name.

    Raises:
        ValueError: what is wrong with the value.
    """
    if value is None or value == "":
        return None
    items = _read_list(value)
    names: list[str] = []
    for item in items:
        described = isinstance(item, Mapping)
        function = item.get("function", item) if isinstance(item, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else item
        if not isinstance(name, str):
            raise ValueError(f"got {item!r:.60}; expected the name of a tool. Write a list of names.")
        if declared is None or name in declared:
            names.append(name)
        elif described and undeclared is not None:
            undeclared[name] += 1
        elif not described:
            close = nearest(name, list(declared))
            raise ValueError(f"no tool {name!r}{close} (declared: {', '.join(declared) or 'none'}). Name one of these.")
    return tuple(dict.fromkeys(names))


def _read_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = read_json(value)
        except NoJsonValue:
            raise
        except ValueError:
            value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"got {value!r:.60}; expected a list of tool names. Write e.g. [search, calculator].")
    return list(value)
