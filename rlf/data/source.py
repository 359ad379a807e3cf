"""Where the rows of a dataset come from: a builtin name, a file, or Hugging Face."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core import Place, nearest
from rlf.data.files import read_csv, read_json, read_jsonl
from rlf.data.mixture import SUFFIX, mix_rows
from rlf.data.rows import Row, fail, read_values, shown_name
from rlf.data.tables import read_hub, read_parquet

Reader = Callable[[Path, str], Iterator[Row]]
"""Yields the rows of a file, given also the file's name for messages."""

READERS: dict[str, Reader] = {
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
"""By the file's suffix."""


def read_rows(path: str, config: str | None, split: str, limit: int | None, images: str | None = None) -> list[Row]:
    """The first `limit` rows of a builtin name, a file, or a Hugging Face dataset, as JSON has them.

    Args:
        images: the column that may hold bytes.

    Raises:
        SpecError: there are no such rows, or one holds what JSON lacks.
    """
    return [read_values(row, images) for row in _iterate_rows(path, config, split, limit)]


def _iterate_rows(path: str, config: str | None, split: str, limit: int | None) -> Iterator[Row]:
    limit = None if limit is None else min(limit, sys.maxsize)
    file = builtin_path(path.removeprefix(BUILTIN)) if path.startswith(BUILTIN) else Path(path)
    shown = shown_name(path)
    if path.endswith(SUFFIX):
        _check_is_file(file, shown)
        return islice(mix_rows(file, shown, _read_unchecked), limit)
    if file.suffix in READERS:
        _check_is_file(file, shown)
        try:
            return iter(list(islice(READERS[file.suffix](file, shown), limit)))
        except OSError as error:
            raise fail(Place(shown), "", f"cannot be read: {error.strerror}. Check its permissions.") from error
    if file.is_absolute() or file.exists():
        message = f"this is not a data file; expected one that ends in {', '.join(READERS)}. Convert it."
        raise fail(Place(shown), "", message)
    return islice(read_hub(path, config, split), limit)


def _read_unchecked(path: str, config: str | None, split: str, limit: int | None) -> list[Row]:
    """The rows of one dataset of a mixture, which are checked with it."""
    return list(_iterate_rows(path, config, split, limit))


def _check_is_file(file: Path, shown: str) -> None:
    if file.is_file():
        return
    if file.is_dir():
        raise fail(Place(shown), "", "this is a folder; expected a data file. Name a file in it.")
    close = nearest(file.name, [other.name for other in file.parent.iterdir()]) if file.parent.is_dir() else ""
    raise fail(Place(shown), "", f"no such file{close or '.'} Check the path.")
