"""A row of a dataset with its place, and how faults of data are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.core import Fault, Place, SpecError


@dataclass(frozen=True, slots=True)
class Row:
    """One row as the file has it."""

    place: Place
    values: Mapping[str, Any]


def fail(place: Place, path: str, message: str) -> SpecError:
    """The error for one fault of a dataset."""
    return SpecError([Fault(place, path, message)])


def shown_name(path: str) -> str:
    """A dataset as messages name it: a file relative to the current folder when below it, other names as they are."""
    file, here = Path(path), Path.cwd()
    return file.relative_to(here).as_posix() if file.is_relative_to(here) else path
