"""Tables read by libraries, each imported when it is needed: parquet files and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlf.core import Place
from rlf.data.rows import Row, fail


def read_parquet(path: Path, shown: str) -> Iterator[Row]:
    """The rows of a parquet file; a row's line is its number."""
    import pyarrow
    import pyarrow.parquet

    try:
        batches = pyarrow.parquet.ParquetFile(path).iter_batches()
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield Row(Place(shown, number), row)
    except (pyarrow.ArrowException, OSError) as error:
        raise fail(Place(shown), "", f"not parquet: {error}. Write it anew with pyarrow or pandas.") from error


def read_hub(name: str, config: str | None, split: str) -> Iterator[Row]:
    """The rows of a Hugging Face dataset, from the local cache or the hub; a row's line is its number."""
    import datasets

    try:
        table = datasets.load_dataset(name, config, split=split)
    except Exception as error:
        reason = str(error).split("\n")[0]
        with_config = "" if config is None else f"a configuration {config!r} and "
        message = (
            f"{type(error).__name__}: {reason}. Expected a Hugging Face dataset with {with_config}a split {split!r}; "
            "for a file, write its path with its suffix."
        )
        raise fail(Place(name), "", message) from error
    for number, row in enumerate(_with_files(table), start=1):
        yield Row(Place(name, number), row)


def _with_files(table: Any) -> Any:
    """The table with pictures as the files that they are, and not decoded."""
    import datasets

    for name, feature in table.features.items():
        if isinstance(feature, datasets.Image):
            table = table.cast_column(name, datasets.Image(decode=False))
        elif isinstance(getattr(feature, "feature", None), datasets.Image):
            table = table.cast_column(name, type(feature)(datasets.Image(decode=False)))
    return table
