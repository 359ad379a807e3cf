"""Typed rows that become a table: of pandas, of Arrow, or of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rlf.core.errors import RlfError
from rlf.core.plain_json import as_json

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T_co = TypeVar("T_co", covariant=True)


class Rows(Sequence[T_co]):
    """Frozen values of one type, in order; as a table, each field is a column.

    The fields of a value within a row have its name before theirs, as `evaluation.step`; metrics stand by themselves.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[T_co]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> T_co: ...

    @overload
    def __getitem__(self, index: slice) -> Rows[T_co]: ...

    def __getitem__(self, index: int | slice) -> T_co | Rows[T_co]:
        return Rows(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        kind = type(self._rows[0]).__name__ if self._rows else ""
        return f"Rows[{kind}]({len(self)})"

    def _repr_html_(self) -> str | None:
        """A table in a notebook; None, so that it shows the text, where pandas is not installed."""
        try:
            return str(self.to_pandas().to_html(max_rows=20, notebook=True))
        except RlfError:
            return None

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as plain JSON, as `rlf ... --json` prints them."""
        found: list[dict[str, Any]] = as_json(self._rows)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise RlfError(
                "to_pandas: pandas is not installed. Write `pip install pandas`, or use to_json()."
            ) from error
        return pd.DataFrame(self._flatten_rows())

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table; a column whose values are of several types holds JSON texts."""
        import pyarrow as pa

        flat = self._flatten_rows()
        names = dict.fromkeys(name for row in flat for name in row)
        return pa.table({name: _make_column([row.get(name) for row in flat]) for name in names})

    def _flatten_rows(self) -> list[dict[str, Any]]:
        return [dict(_flatten_row(row, "")) for row in self.to_json()]


def _flatten_row(row: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flatten_row(value, before if name == "metrics" else f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _make_column(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values])
