"""Rows of files and of Hugging Face datasets, and their values by column name, dots leading into what JSON holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rlf.core import Fault, Place, SpecError, nearest
from rlf.core.plain_json import HoldsBytes, NoJsonValue, json_value, parse_json, read_json

# A row of a dataset with its place, and how faults of data are reported.


@dataclass(frozen=True, slots=True)
class Row:
    """One row as the file has it."""

    place: Place
    values: Mapping[str, Any]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why columns are not there that the file has: those of bytes, as of images that nothing names."""


def read_values(row: Row, images: str | None = None) -> Row:
    """The row with values as JSON has them, from whichever door it came. Raises SpecError with the column's name.

    Args:
        images: the column that may hold bytes.
    """
    values: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for column, value in row.values.items():
        try:
            values[json_value(column)] = value if column == images else json_value(value)
        except HoldsBytes as error:
            left_out[column] = str(error)
        except NoJsonValue as error:
            raise fail(row.place, ascii(column)[1:-1], str(error)) from error
    return Row(row.place, values, left_out)


def fail(place: Place, path: str, message: str) -> SpecError:
    """The error for one fault of a dataset."""
    return SpecError([Fault(place, path, message)])


def fail_encoding(place: Place, content: bytes) -> SpecError:
    from rlf.core.mistakes import not_utf8

    return fail(place, "", not_utf8(content, "A data file"))


def shown_name(path: str) -> str:
    """A dataset as messages name it: a file relative to the current folder when below it, other names as they are."""
    file, here = Path(path), Path.cwd()
    return file.relative_to(here).as_posix() if file.is_relative_to(here) else path


def read_jsonl(path: Path, shown: str) -> Iterator[Row]:
    """One JSON object a line; blank lines are skipped."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = Place(shown, number, 1)
                value, repeated = _parse_json(line.strip(), place)
                if repeated:
                    _refuse_repeated_keys(place, repeated + _count_repeated(file))
                yield Row(place, _require_object(value, place, "the line"))


def read_list(path: Path, shown: str) -> Iterator[Row]:
    """A list of objects."""
    rows, repeated = _parse_json(path.read_bytes(), Place(shown))
    if repeated:
        _refuse_repeated_keys(Place(shown), repeated)
    if not isinstance(rows, list):
        raise fail(
            Place(shown), "", f"the file holds {_type_name(rows)}; expected a list of objects. Write [{{...}}, ...]."
        )
    for index, row in enumerate(rows):
        yield Row(Place(shown), _require_object(row, Place(shown), f"row {index}"))


def find_form(path: Path) -> str | None:
    """The sentence about a file in another form than its suffix says; None where that is not seen."""
    from rlf.core.mistakes import explain

    with path.open(encoding="utf-8-sig", errors="replace") as file:
        start = file.read(4096)
    found = explain("data", f"{path.suffix} {start}", stem=path.stem, name=path.name, suffix=path.suffix)
    return None if found is None else found[0]


def _parse_json(text: bytes, place: Place) -> tuple[Any, Counter[str]]:
    """The value, and in how many objects of it each key stands more than once."""
    try:
        return parse_json(text.decode().removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise fail_encoding(place, text) from error
    except json.JSONDecodeError as error:
        where = Place(place.file, (place.line or 1) + error.lineno - 1, error.colno)
        raise fail(where, "", f"not JSON: {error.msg[0].lower()}{error.msg[1:]}. Correct this line.") from error
    except ValueError as error:
        raise fail(place, "", f"not JSON: {error}. Correct the value.") from error


def _count_repeated(lines: Iterable[bytes]) -> Counter[str]:
    """In how many objects of the lines, those left out that are not JSON, each key stands more than once."""
    found: Counter[str] = Counter()
    for line in lines:
        with suppress(SpecError):
            found += _parse_json(line, Place(""))[1]
    return found


def _refuse_repeated_keys(place: Place, repeated: Counter[str]) -> NoReturn:
    """Of a key that is written twice only the last value would be read."""
    keys = ", ".join(f"{key!r} in {count} object{'' if count == 1 else 's'}" for key, count in repeated.most_common())
    raise fail(place, "", f"some keys are written more than once: {keys}, the first one here. Write each once.")


def _require_object(row: Any, place: Place, what: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise fail(place, "", f"{what} is {_type_name(row)}; expected an object. Write the columns as {{...}}.")
    return row


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


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
