"""Rows of files and of Hugging Face datasets."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rlf.core import Fault, Place, SpecError
from rlf.core.plain_json import HoldsBytes, NoJsonValue, json_value, parse_json

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


def _not_utf8(place: Place, content: bytes) -> SpecError:
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


def read_csv(path: Path, shown: str) -> Iterator[Row]:
    """A header line with the columns, then a row a record."""
    line = 1
    if (form := find_form(path)) is not None:  # a wrong separator is no error of the reader's
        raise fail(Place(shown), "", form)
    csv.field_size_limit(sys.maxsize)  # of the process: a field may be as long as a text of JSON Lines
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            _refuse_repeated_fields(list(reader.fieldnames or ()), shown)
            for row in reader:
                line = reader.line_num
                if None in row:
                    raise fail(
                        Place(shown, line, 1),
                        "",
                        f"the record has more fields than the header's {len(reader.fieldnames or ())} columns. "
                        "Quote fields that hold commas.",
                    )
                yield Row(Place(shown, line, 1), row)
    except csv.Error as error:
        raise fail(Place(shown, line + 1, 1), "", f"not CSV: {error}. Check the quotes around here.") from error
    except UnicodeDecodeError as error:
        raise _not_utf8(Place(shown), path.read_bytes()) from error


def find_form(path: Path) -> str | None:
    """The sentence about a file in another form than its suffix says; None where that is not seen."""
    from rlf.core.mistakes import explain

    with path.open(encoding="utf-8-sig", errors="replace") as file:
        start = file.read(4096)
    found = explain("data", f"{path.suffix} {start}", stem=path.stem, name=path.name, suffix=path.suffix)
    return None if found is None else found[0]


def _refuse_repeated_fields(columns: list[str], shown: str) -> None:
    """Of columns with one name only the last would be read."""
    repeated = [f"{name!r} {count} times" for name, count in Counter(columns).items() if count > 1]
    if repeated:
        message = f"the header has {', '.join(repeated)}; a row has one value for each column. Rename the others."
        raise fail(Place(shown, 1, 1), "", message)


def _parse_json(text: bytes, place: Place) -> tuple[Any, Counter[str]]:
    """The value, and in how many objects of it each key stands more than once."""
    try:
        return parse_json(text.decode().removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise _not_utf8(place, text) from error
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
