"""Several datasets as one, by weights: a `.mix.yaml` file that lists them.

Rows are dealt out so that after each of them the shares are as near to the weights as they can be, each dataset in its
own order, until the next row would be of one that has no more: no row comes twice. Departure from OpenRLHF's
`prompt_probs`, which continues until all are exhausted and repeats rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from rlf.builtin.names import BUILTIN
from rlf.core import Place
from rlf.core.kinds import StrictModel
from rlf.core.yaml_text import load_document
from rlf.data.files import Row, cell, fail

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
