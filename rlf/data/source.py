"""Where the rows of a dataset come from: a builtin name, a file, or Hugging Face; and a row's values by column.

A column's dotted name goes into mappings, lists and columns that hold JSON as text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core import Place, SpecError, nearest
from rlf.core.files import DATA_SUFFIXES, MIXTURE_SUFFIX
from rlf.core.registry import load_function
from rlf.data.files import Row, fail, find_form, read_jsonl, read_list, read_values, shown_name

# Where the rows of a dataset come from: a builtin name, a file, or Hugging Face.


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
    if path.endswith(MIXTURE_SUFFIX):
        _check_is_file(file, shown)
        from rlf.data.mixture import mix_rows

        # The rows of each dataset of a mixture are checked with it.
        return islice(mix_rows(file, shown, lambda *each: list(_iterate_rows(*each))), limit)
    if file.suffix in READERS:
        _check_is_file(file, shown)
        try:
            return iter(list(islice(READERS[file.suffix](file, shown), limit)))
        except SpecError as error:
            if (form := find_form(file)) is None:
                raise
            raise fail(Place(shown), "", form) from error
        except OSError as error:
            raise fail(Place(shown), "", f"cannot be read: {error.strerror}. Check its permissions.") from error
    if file.is_absolute() or file.exists():
        how = "Name a file in it." if file.is_dir() else (file.is_file() and find_form(file)) or "Convert it."
        message = f"this is not a data file; expected one that ends in {', '.join(READERS)}. {how}"
        raise fail(Place(shown), "", message)
    from rlf.data.tables import read_hub

    return islice(read_hub(path, config, split), limit)


def _check_is_file(file: Path, shown: str) -> None:
    if file.is_file():
        return
    if file.is_dir():
        raise fail(Place(shown), "", "this is a folder; expected a data file. Name a file in it.")
    close = nearest(file.name, [other.name for other in file.parent.iterdir()]) if file.parent.is_dir() else ""
    raise fail(Place(shown), "", f"no such file{close or '.'} Check the path.")


Reader = Callable[[Path, str], Iterator[Row]]
"""Yields the rows of a file, given also the file's name for messages."""


def _in_table(reader: str) -> Reader:
    def read(path: Path, shown: str) -> Iterator[Row]:
        rows: Iterator[Row] = load_function(f"data.tables:{reader}")(path, shown)
        return rows

    return read


READERS: dict[str, Reader] = dict(
    zip(DATA_SUFFIXES, (read_jsonl, read_list, _in_table("read_csv"), _in_table("read_parquet")), strict=True)
)
"""By the file's suffix."""
