"""Tables read by libraries, each imported when it is needed: parquet files and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rlf.core import Place
from rlf.core.json_values import NoJsonValue
from rlf.data.arrow import column_converters, repeated_names
from rlf.data.rows import Row, fail

_HUB_TIMEOUT_S = 10.0
_BATCH_ROWS = 1000
_OR_A_FILE = "Check the name and the network, or write the path of a file with its suffix."


def read_parquet(path: Path, shown: str) -> Iterator[Row]:
    """The rows of a parquet file; a row's line is its number."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        _refuse_repeated(file.schema_arrow, shown)
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        yield from _converted(rows, file.schema_arrow, shown)
    except (pyarrow.ArrowException, OSError) as error:
        raise fail(Place(shown), "", f"not parquet: {error}. Save it again with pyarrow or pandas.") from error
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, a date that Python does not have
        raise fail(Place(shown), "", f"a value cannot be read: {error}. Save it again as text.") from error


def _refuse_repeated(schema: Any, shown: str) -> None:
    """Of columns with one name only the last would be read."""
    repeated = repeated_names(schema)
    if repeated is not None:
        message = f"the schema has {repeated}; a row has one value for each column. Rename the others."
        raise fail(Place(shown), "", message)


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
