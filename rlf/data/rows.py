"""Rows of a dataset, each with its place, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core import Fault, Place, SpecError, nearest


@dataclass(frozen=True, slots=True)
class Row:
    """One row as the file has it."""

    place: Place
    values: Mapping[str, Any]


Reader = Callable[[Path, str], Iterator[Row]]
"""Yields the rows of a file, given also the file's name for messages."""


def read_rows(path: str, split: str, limit: int | None) -> list[Row]:
    """The first `limit` rows of a builtin name, a file, or a Hugging Face dataset. Raises SpecError."""
    from rlf.data.files import read_csv, read_json, read_jsonl
    from rlf.data.tables import read_hub, read_parquet

    readers: dict[str, Reader] = {
        ".jsonl": read_jsonl,
        ".json": read_json,
        ".csv": read_csv,
        ".parquet": read_parquet,
    }
    file = builtin_path(path.removeprefix(BUILTIN)) if path.startswith(BUILTIN) else Path(path)
    shown = shown_name(path)
    if file.suffix in readers:
        _check_is_file(file, shown)
        return list(islice(readers[file.suffix](file, shown), limit))
    if file.is_absolute() or file.exists():
        message = f"this is no data file; expected one that ends in {', '.join(readers)}. Name or convert one."
        raise fail(Place(shown), "", message)
    return list(islice(read_hub(path, split), limit))


def fail(place: Place, path: str, message: str) -> SpecError:
    """The error for one fault of a dataset."""
    return SpecError([Fault(place, path, message)])


def _check_is_file(file: Path, shown: str) -> None:
    if file.is_file():
        return
    if file.is_dir():
        raise fail(Place(shown), "", "this is a folder; expected a data file. Name a file in it.")
    close = nearest(file.name, [other.name for other in file.parent.iterdir()]) if file.parent.is_dir() else ""
    raise fail(Place(shown), "", f"no such file{close or '.'} Check the path.")


def shown_name(path: str) -> str:
    """A dataset as messages name it: a file relative to the current folder when below it, other names as they are."""
    file, here = Path(path), Path.cwd()
    return file.relative_to(here).as_posix() if file.is_relative_to(here) else path
