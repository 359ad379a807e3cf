"""Comparison of the rows of two tables: numbers within a tolerance, everything else as it is.

Two whole numbers must be equal, so that neighbouring keys and counts are never the same; where one of them is a
fraction they are near within tolerance * max(1, |expected|), by default within max(1e-6, 1e-9 |expected|). Rows are
paired one to one, as many as can be, so that no order of the rows decides. An infinite number is near itself alone,
and NaN is NaN.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

Row = tuple[Any, ...]

_ABSOLUTE, _RELATIVE = 1e-6, 1e-9
"""How far numbers may lie apart without a declared tolerance: what the order of a sum changes, and no more."""

_NAN = math.nan
"""The one that stands for each, since no two are equal."""


def as_rows(value: Any) -> list[Row] | None:
    """The rows of a table in JSON; None for anything else."""
    table = value.get("rows") if isinstance(value, Mapping) else value
    if not isinstance(table, list) or not all(isinstance(row, list | tuple) for row in table):
        return None
    return [tuple(map(_to_comparable, row)) for row in table]


def is_near(got: Row, expected: Row, tolerance: float | None) -> bool:
    """Whether two rows are the same within a tolerance."""
    return len(got) == len(expected) and all(
        _cell_is_near(*cells, tolerance) for cells in zip(got, expected, strict=True)
    )


def num_in_place(got: Sequence[Row], expected: Sequence[Row], tolerance: float | None) -> int:
    """How many rows are the expected ones of their place."""
    return sum(is_near(*rows, tolerance) for rows in zip(got, expected, strict=False))


def num_found(got: Sequence[Row], expected: Sequence[Row], tolerance: float | None) -> int:
    """How many of the distinct rows are near one that is expected."""
    known = set(expected)
    near = _Near(tuple(known), tolerance)
    return sum(row in known or any(True for _ in near.places(row)) for row in set(got))


def num_paired(got: Sequence[Row], expected: Sequence[Row], tolerance: float | None) -> int:
    """How many pairs of near rows there are at most, each row in one pair."""
    equal = Counter(got) & Counter(expected) if tolerance is None else Counter[Row]()
    left, wanted = list((Counter(got) - equal).elements()), list((Counter(expected) - equal).elements())
    near = _Near(wanted, tolerance)
    return equal.total() + _num_matched([list(near.places(row)) for row in left], len(wanted))


class _Near:
    """Finds the rows that are near one: among those of its shape, by the number in which they differ most."""

    def __init__(self, rows: Sequence[Row], tolerance: float | None) -> None:
        self._rows, self._tolerance = rows, tolerance
        by_shape: dict[Row, list[int]] = {}
        for at, row in enumerate(rows):
            by_shape.setdefault(_row_shape(row), []).append(at)
        self._lots = {shape: self._order_rows(shape, places) for shape, places in by_shape.items()}

    def _order_rows(self, shape: Row, places: list[int]) -> tuple[int | None, list[float], list[int]]:
        """A column of numbers, its numbers in order, and the places of their rows."""
        columns = [column for column, cell in enumerate(shape) if cell is None]
        if not columns:
            return None, [], places
        column = max(columns, key=lambda each: len({self._rows[at][each] for at in places}))
        places = sorted(places, key=lambda at: self._rows[at][column])
        return column, [self._rows[at][column] for at in places], places

    def places(self, row: Row) -> Iterator[int]:
        """Where the rows are that are near this one."""
        column, numbers, places = self._lots.get(_row_shape(row), (None, [], []))
        if column is not None:
            low, high = _near_window(row[column], self._tolerance)
            places = places[bisect_left(numbers, low) : bisect_right(numbers, high)]
        return (at for at in places if is_near(row, self._rows[at], self._tolerance))


def _near_window(number: float, tolerance: float | None) -> tuple[float, float]:
    """Where every number lies that is near this one; it may be wider."""
    absolute, relative = (_ABSOLUTE, _RELATIVE) if tolerance is None else (tolerance, tolerance)
    if relative >= 1:
        return -math.inf, math.inf
    try:
        reach = 2 * max(absolute, relative / (1 - relative) * abs(number))
        return number - reach, number + reach
    except OverflowError:  # an integer beyond what a float holds
        return number, number


def _num_matched(near: Sequence[Sequence[int]], num_right: int) -> int:
    """The size of a largest matching: each place on the left with the places on the right that it can have."""
    if not any(near):
        return 0
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    rights = [right for rights in near for right in rights]
    starts = [0, *accumulate(map(len, near))]
    graph = csr_matrix(([1] * len(rights), rights, starts), shape=(len(near), num_right))
    return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


def _to_comparable(value: Any) -> Any:
    """A cell that can be compared and hashed; lists and mappings of JSON columns become tuples."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _to_comparable(child)) for key, child in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_to_comparable, value))
    return _NAN if value != value else value


def _row_shape(row: Row) -> Row:
    """The row with its numbers left out: near rows have the same."""
    return tuple(None if _is_number(cell) else _row_shape(cell) if isinstance(cell, tuple) else (cell,) for cell in row)


def _cell_is_near(got: Any, expected: Any, tolerance: float | None) -> bool:
    if got is expected or got == expected:
        return True
    if isinstance(got, tuple) and isinstance(expected, tuple):
        return is_near(got, expected, tolerance)
    if not (_is_number(got) and _is_number(expected)) or (isinstance(got, int) and isinstance(expected, int)):
        return False
    try:
        size = abs(expected)
        limit = max(_ABSOLUTE, _RELATIVE * size) if tolerance is None else tolerance * max(1.0, size)
        return bool(abs(got - expected) <= limit)
    except OverflowError:  # an integer beyond what a float holds
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
