"""Where the rows of a dataset come from: a builtin name, a file, or Hugging Face; and a row's values by column.

A column's dotted name goes into mappings, lists and columns that hold JSON as text.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core import Place, SpecError, nearest
from rlf.core.files import DATA_SUFFIXES, MIXTURE_SUFFIX
from rlf.core.kinds import StrictModel
from rlf.core.plain_json import NoJsonValue, read_json
from rlf.core.yaml_text import load_document
from rlf.data.files import Row, fail, find_form, read_csv, read_jsonl, read_list, read_values, shown_name


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


# Where the rows of a dataset come from: a builtin name, a file, or Hugging Face.

# Several datasets as one, by weights: a `.mix.yaml` file that lists them.
#
# Rows are dealt out so that after each of them the shares are as near to the weights as they can be, each dataset in
# its own order, until the next row would be of one that has no more: no row comes twice. Departure from OpenRLHF's
# `prompt_probs`, which continues until all are exhausted and repeats rows.

ReadRows = Callable[[str, str | None, str, int | None], list[Row]]


class MixedDataset(StrictModel):
    """One dataset of a mixture."""

    path: str
    """As `data.train.path`; a file relative to the one that lists it."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Its share of the rows, beside the weights of the others."""
    config: str | None = None
    """Configuration of a Hugging Face dataset."""
    split: str = "train"
    """Split of a Hugging Face dataset."""
    limit: int | None = Field(None, ge=1)
    """Rows taken from the start; None: all."""
    columns: Mapping[str, str] = {}
    """Further columns, each by the dataset's own column that fills it: where datasets name the same differently."""


_MIXTURE = TypeAdapter(list[MixedDataset])


def read_mixture(path: Path, shown: str) -> list[MixedDataset]:
    """The sources of a mixture, files as whole paths. Raises SpecError."""
    try:
        found = _MIXTURE.validate_python(load_document(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise fail(Place(shown), key, f"{first['msg']}. {_FORM}") from error
    except ValueError as error:
        raise fail(Place(shown), "", f"not YAML: {error}. {_FORM}") from error
    if not found:
        raise fail(Place(shown), "", f"it lists no dataset. {_FORM}")
    return [one.model_copy(update={"path": _whole_path(one.path, path.parent)}) for one in found]


_FORM = "Write e.g. `- {path: nq.jsonl, weight: 2, columns: {prompt: question}}` for each dataset."


def mix_rows(path: Path, shown: str, read: ReadRows) -> Iterator[Row]:
    """The rows of a mixture: with `dataset`, the name of the file or dataset, and an `id` that begins with it."""
    datasets = read_mixture(path, shown)
    names = [Path(one.path.removeprefix(BUILTIN)).name.partition(".")[0] for one in datasets]
    names = [name if names.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(names)]
    rows = [read(one.path, one.config, one.split, one.limit) for one in datasets]
    total = sum(one.weight for one in datasets)
    for chosen, index in _deal([one.weight / total for one in datasets], list(map(len, rows))):
        yield _named_row(rows[chosen][index], names[chosen], datasets[chosen].columns)


def _deal(shares: Sequence[float], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Which dataset the next row is of, and which row of it: of the one that lacks most."""
    dealt = [0] * len(shares)
    for number in range(1, sum(sizes) + 1):
        chosen = max(range(len(shares)), key=lambda at: (shares[at] * number - dealt[at], -at))
        if dealt[chosen] == sizes[chosen]:
            return
        yield chosen, dealt[chosen]
        dealt[chosen] += 1


def _named_row(row: Row, name: str, columns: Mapping[str, str]) -> Row:
    values: dict[str, Any] = dict(row.values)
    values |= {new: cell(row.values, own) for new, own in columns.items()}
    if values.get("id") not in (None, ""):
        values["id"] = f"{name}/{values['id']}"
    return Row(row.place, values | {"dataset": name})


def _whole_path(path: str, folder: Path) -> str:
    """A file's path from the mixture's folder; other names as they are."""
    file = folder / path
    return str(file.absolute()) if not path.startswith(BUILTIN) and (Path(path).suffix or file.exists()) else path


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


def _read_parquet(path: Path, shown: str) -> Iterator[Row]:
    from rlf.data.tables import read_parquet

    return read_parquet(path, shown)


READERS: dict[str, Reader] = dict(zip(DATA_SUFFIXES, (read_jsonl, read_list, read_csv, _read_parquet), strict=True))
"""By the file's suffix."""
