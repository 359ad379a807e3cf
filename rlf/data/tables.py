"""Tables read by libraries, each imported when it is needed: CSV and parquet files, and Hugging Face datasets."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rlf.core import Place
from rlf.core.plain_json import NoJsonValue, short_float
from rlf.data.files import Row, fail, fail_encoding, find_form

Convert = Callable[[Any], Any]
"""Changes a value that `to_pylist` gave; never called with None."""


def repeated_names(fields: Any) -> str | None:
    """The names that several fields of a schema or of a struct in it have, with their numbers; None where none has."""
    counts = Counter(field.name for field in fields)
    repeated = [f"{name!r} {count} times" for name, count in counts.items() if count > 1]
    if repeated:
        return ", ".join(repeated)
    return next((found for field in fields if (found := _repeated_within(field.type)) is not None), None)


def _repeated_within(kind: Any) -> str | None:
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return repeated_names([kind.field(at) for at in range(kind.num_fields)])
    inner = [kind.value_type] if _is_list(kind) else [kind.item_type] if pyarrow.types.is_map(kind) else []
    return next((found for each in inner if (found := _repeated_within(each)) is not None), None)


def column_converters(fields: Sequence[Any]) -> dict[str, Convert]:
    """What changes the values of columns, by name; without those that nothing changes."""
    return {field.name: convert for field in fields if (convert := _converter(field.type)) is not None}


def _converter(kind: Any) -> Convert | None:
    """What changes the values of a type; None where nothing does."""
    import pyarrow

    types = pyarrow.types
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _converter(kind.storage_type)
    if types.is_dictionary(kind):
        return _converter(kind.value_type)
    if types.is_float32(kind) or types.is_float16(kind):
        number = kind.to_pandas_dtype()
        return lambda value: short_float(number(value))
    if types.is_map(kind):
        return _map_converter(_converter(kind.item_type))
    if types.is_struct(kind):
        converts = column_converters([kind.field(at) for at in range(kind.num_fields)])
        if not converts:
            return None
        return lambda row: row | {at: to(row[at]) for at, to in converts.items() if row.get(at) is not None}
    inner = _converter(kind.value_type) if _is_list(kind) else None
    return None if inner is None else (lambda value: [None if item is None else inner(item) for item in value])


def _is_list(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(is_view or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _map_converter(inner: Convert | None) -> Convert:
    """A map, which Arrow gives as pairs, as a mapping. Raises NoJsonValue for a key twice."""

    def convert(value: Any) -> dict[Any, Any]:
        pairs = list(value.items() if isinstance(value, dict) else value)
        found = {key: item if inner is None or item is None else inner(item) for key, item in pairs}
        if len(found) < len(pairs):
            key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise NoJsonValue(f"the key {key!r} stands more than once in one object. Write it once.")
        return found

    return convert


_HUB_TIMEOUT_S = 10.0
_BATCH_ROWS = 1000
_OR_A_FILE = "Check the name and the network, or write the path of a file with its suffix."


def read_parquet(path: Path, shown: str) -> Iterator[Row]:
    """The rows of a parquet file; a row's line is its number."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        # Of columns with one name only the last would be read.
        repeated = repeated_names(file.schema_arrow)
        if repeated is not None:
            message = f"the schema has {repeated}; a row has one value for each column. Rename the others."
            raise fail(Place(shown), "", message)
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        yield from _converted(rows, file.schema_arrow, shown)
    except (pyarrow.ArrowException, OSError) as error:
        raise fail(Place(shown), "", f"not parquet: {error}. Save it again with pyarrow or pandas.") from error
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, a date that Python does not have
        raise fail(Place(shown), "", f"a value cannot be read: {error}. Save it again as text.") from error


def _converted(rows: Iterable[dict[str, Any]], schema: Any, shown: str) -> Iterator[Row]:
    """Rows of Arrow; a row's line is its number."""
    converts = column_converters(list(schema))
    for number, row in enumerate(rows, start=1):
        place = Place(shown, number)
        for column, convert in converts.items():
            try:
                row[column] = None if row[column] is None else convert(row[column])
            except NoJsonValue as error:
                raise fail(place, column, str(error)) from error
        yield Row(place, row)


def read_hub(name: str, config: str | None, split: str) -> Iterator[Row]:
    """The rows of a Hugging Face dataset, from the local cache or the hub; a row's line is its number."""
    import datasets

    reachable = _ask_hub(name)
    try:
        with nullcontext() if reachable else _cache_alone():
            table = datasets.load_dataset(name, config, split=split)
    except Exception as error:
        raise fail(Place(name), "", _why_not(error, name, config, split, reachable=reachable)) from error
    # as Arrow has it: `datasets` would decode images, audio and videos, with libraries that may not be there
    batches = table.with_format("arrow").iter(batch_size=_BATCH_ROWS)
    rows = (row for batch in batches for row in batch.to_pylist())
    yield from _converted(rows, table.features.arrow_schema, name)


def _ask_hub(name: str) -> bool:
    """Whether the Hub answers: one request, since `datasets` tries each of its own for half a minute.

    Raises SpecError where it says that there is no such dataset.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        HfApi().dataset_info(name, timeout=_HUB_TIMEOUT_S)
    except HFValidationError:  # no name of the Hub's: `datasets` says what it takes it for
        return True
    except RepositoryNotFoundError as error:
        message = f"the Hugging Face Hub has no dataset {name!r} that you may read. {_OR_A_FILE}"
        raise fail(Place(name), "", message) from error
    except Exception:  # noqa: BLE001 - of several libraries below; whatever it is, the cache is what is left
        return False
    return True


@contextmanager
def _cache_alone() -> Iterator[None]:
    """Has `datasets` look into its cache without asking the Hub."""
    import datasets
    import huggingface_hub

    places: list[Any] = [datasets.config, huggingface_hub.constants]
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place in places:
            place.HF_HUB_OFFLINE = True
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value


def _why_not(error: Exception, name: str, config: str | None, split: str, *, reachable: bool) -> str:
    if not reachable:
        return f"the Hugging Face Hub cannot be reached, and {name!r} is not in this machine's cache. {_OR_A_FILE}"
    with_config = "" if config is None else f"a configuration {config!r} and "
    expected = f"Expected a Hugging Face dataset with {with_config}a split {split!r}. For a file, write its path."
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}. {expected}"


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
        raise fail_encoding(Place(shown), path.read_bytes()) from error


def _refuse_repeated_fields(columns: list[str], shown: str) -> None:
    """Of columns with one name only the last would be read."""
    repeated = [f"{name!r} {count} times" for name, count in Counter(columns).items() if count > 1]
    if repeated:
        message = f"the header has {', '.join(repeated)}; a row has one value for each column. Rename the others."
        raise fail(Place(shown, 1, 1), "", message)
