"""A row of a dataset with its place, and how faults of data are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlf.core import Fault, Place, SpecError
from rlf.core.json_values import HoldsBytes, NoJsonValue, json_value


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


def shown_name(path: str) -> str:
    """A dataset as messages name it: a file relative to the current folder when below it, other names as they are."""
    file, here = Path(path), Path.cwd()
    return file.relative_to(here).as_posix() if file.is_relative_to(here) else path
