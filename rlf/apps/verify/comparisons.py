"""Comparisons of a tool's result with what is expected: pure functions that return a value of 0 to 1 and a reason."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rlf.core.text import show_value
from rlf.rewards.rules.numeric import last_number
from rlf.types import ToolResult

# Comparison of the rows of two tables: numbers within a tolerance, everything else as it is.
#
# Two whole numbers must be equal, so that neighbouring keys and counts are never the same; where one of them is a
# fraction they are near within tolerance * max(1, |expected|), by default within max(1e-6, 1e-9 |expected|). Rows are
# paired one to one, as many as can be, so that no order of the rows decides. An infinite number is near itself alone,
# and NaN is NaN.

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


_MAX_SHOWN_CHARS = 80
_TOLERANCE = 1e-6
"""Of numbers that are not in rows, where none is declared."""
NO_ROWS = "neither side has rows, so any query without rows is right"


class NothingToCompare(ValueError):
    """A side lacks what is compared; the message says what."""


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side of a comparison."""

    text: str
    value: Any
    """As JSON values; None where the text is no JSON either."""
    is_cut: bool = False
    """Whether there is more than this."""


def read_result(result: ToolResult) -> ComparedSide:
    """A tool's result: its structured content, else its text read as JSON."""
    text = result.text if result.original is None else result.original
    value = result.structured
    cut_rows = isinstance(value, Mapping) and value.get("truncated") is True
    is_cut = result.truncated and result.original is None and value is None
    return ComparedSide(text, _parse_or_text(text) if value is None else value, is_cut or cut_rows)


def read_expected(value: Any) -> ComparedSide:
    """A dataset's value; text is read as JSON where it is some."""
    if isinstance(value, str):
        return ComparedSide(value, _parse_or_text(value))
    return ComparedSide(json.dumps(value, ensure_ascii=False, default=str), value)


def equal(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """Whether both texts are the same, white space at the ends aside."""
    one, other = got.text.strip(), expected.text.strip()
    return float(one == other), f"got {show_value(one)}; expected {show_value(other)}"


def numeric(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """|got - expected| <= tolerance * max(1, |expected|) for the last number of each text."""
    one, other = last_number(got.text), last_number(expected.text)
    if other is None:
        raise NothingToCompare(f"no number in {expected.text[:_MAX_SHOWN_CHARS]!r}")
    if one is None:
        return 0.0, f"no number in {got.text[:_MAX_SHOWN_CHARS]!r}"
    return float(_is_near(one, other, tolerance)), f"got {one:g}; expected {other:g}"


def rows_set(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """Whether the same rows occur, in any order, any number of times."""
    found, wanted = _both_rows(got, expected)
    if found is None or got.is_cut:
        return _without_rows(got, found, wanted)
    common = num_found(found, wanted, tolerance)
    missing = len(set(wanted)) - num_found(wanted, found, tolerance)
    return _about_rows(common == len(set(found)) and not missing, found, wanted, common)


def rows_multiset(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """Whether the same rows occur equally often, in any order."""
    return _pair_values(got, expected, tolerance, num_paired)


def rows_ordered(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """Whether the rows are the same, one after the other."""
    return _pair_values(got, expected, tolerance, num_in_place)


def json_subset(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """Whether every key and value that is expected is there; lists must be of one length."""
    if expected.value is None:
        raise NothingToCompare(f"{expected.text[:_MAX_SHOWN_CHARS]!r} is no JSON")
    missing = _find_missing(expected.value, got.value, "$", tolerance)
    return float(missing is None), missing or "all that is expected is there"


_FUNCTIONS = (equal, numeric, rows_set, rows_multiset, rows_ordered, json_subset)
COMPARISONS: Mapping[str, Callable[[ComparedSide, ComparedSide, float | None], tuple[float, str]]] = {
    function.__name__: function for function in _FUNCTIONS
}
"""By the words of `compare`."""


def _pair_values(
    got: ComparedSide,
    expected: ComparedSide,
    tolerance: float | None,
    count: Callable[[Sequence[Row], Sequence[Row], float | None], int],
) -> tuple[float, str]:
    found, wanted = _both_rows(got, expected)
    if found is None or got.is_cut:
        return _without_rows(got, found, wanted)
    common = count(found, wanted, tolerance)
    return _about_rows(common == len(found) == len(wanted), found, wanted, common)


def _both_rows(got: ComparedSide, expected: ComparedSide) -> tuple[list[Row] | None, list[Row]]:
    """The rows of both sides. Raises NothingToCompare where those that are expected are not known."""
    wanted = as_rows(expected.value)
    if wanted is None or expected.is_cut:
        what = (
            "not all of its rows are shown" if expected.is_cut else f"no rows in {expected.text[:_MAX_SHOWN_CHARS]!r}"
        )
        raise NothingToCompare(what)
    return as_rows(got.value), wanted


def _without_rows(got: ComparedSide, found: Sequence[Row] | None, wanted: Sequence[Row]) -> tuple[float, str]:
    if found is None:
        return 0.0, f"no rows in {got.text[:_MAX_SHOWN_CHARS]!r}"
    return 0.0, f"more than {len(found)} rows; expected {len(wanted)}"


def _about_rows(is_same: bool, found: Sequence[Row], wanted: Sequence[Row], num_common: int) -> tuple[float, str]:
    if not found and not wanted:
        return 1.0, NO_ROWS
    return float(is_same), f"{len(found)} rows, {num_common} of the {len(wanted)} expected rows are among them"


def _find_missing(expected: Any, got: Any, place: str, tolerance: float | None) -> str | None:
    """The first thing that is expected and not there, in words."""
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            return f"{place} is not an object"
        absent = next((key for key in expected if key not in got), None)
        if absent is not None:
            return f"{place}.{absent} is missing"
        found = (_find_missing(value, got[key], f"{place}.{key}", tolerance) for key, value in expected.items())
        return next((each for each in found if each), None)
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return f"{place} is not a list of {len(expected)}"
        found = (
            _find_missing(*pair, f"{place}[{at}]", tolerance) for at, pair in enumerate(zip(expected, got, strict=True))
        )
        return next((each for each in found if each), None)
    if _is_number_comparisons(expected) and _is_number_comparisons(got):
        same = _is_near(got, expected, tolerance)
    else:
        same = type(expected) is type(got) and expected == got
    return None if same else f"{place} is {show_value(got)}; expected {show_value(expected)}"


def _is_number_comparisons(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_near(got: float, expected: float, tolerance: float | None) -> bool:
    if got == expected or (got != got and expected != expected):
        return True
    try:
        distance, size = abs(got - expected), abs(expected)
        return distance <= (_TOLERANCE if tolerance is None else tolerance) * max(1.0, size) and size < math.inf
    except OverflowError:  # an integer beyond what a float holds
        return False


def _parse_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
