"""Comparisons of a tool's result with what is expected: pure functions that return a value of 0 to 1 and a reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.rewards import rows
from rlf.rewards.numbers import last_number
from rlf.types import ToolResult

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
    return float(one == other), f"got {_shorten_value(one)}; expected {_shorten_value(other)}"


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
    common = rows.num_found(found, wanted, tolerance)
    missing = len(set(wanted)) - rows.num_found(wanted, found, tolerance)
    return _about_rows(common == len(set(found)) and not missing, found, wanted, common)


def rows_multiset(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """Whether the same rows occur equally often, in any order."""
    return _pair_values(got, expected, tolerance, rows.num_paired)


def rows_ordered(got: ComparedSide, expected: ComparedSide, tolerance: float | None) -> tuple[float, str]:
    """Whether the rows are the same, one after the other."""
    return _pair_values(got, expected, tolerance, rows.num_in_place)


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
    count: Callable[[Sequence[rows.Row], Sequence[rows.Row], float | None], int],
) -> tuple[float, str]:
    found, wanted = _both_rows(got, expected)
    if found is None or got.is_cut:
        return _without_rows(got, found, wanted)
    common = count(found, wanted, tolerance)
    return _about_rows(common == len(found) == len(wanted), found, wanted, common)


def _both_rows(got: ComparedSide, expected: ComparedSide) -> tuple[list[rows.Row] | None, list[rows.Row]]:
    """The rows of both sides. Raises NothingToCompare where those that are expected are not known."""
    wanted = rows.as_rows(expected.value)
    if wanted is None or expected.is_cut:
        what = (
            "not all of its rows are shown" if expected.is_cut else f"no rows in {expected.text[:_MAX_SHOWN_CHARS]!r}"
        )
        raise NothingToCompare(what)
    return rows.as_rows(got.value), wanted


def _without_rows(got: ComparedSide, found: Sequence[rows.Row] | None, wanted: Sequence[rows.Row]) -> tuple[float, str]:
    if found is None:
        return 0.0, f"no rows in {got.text[:_MAX_SHOWN_CHARS]!r}"
    return 0.0, f"more than {len(found)} rows; expected {len(wanted)}"


def _about_rows(
    is_same: bool, found: Sequence[rows.Row], wanted: Sequence[rows.Row], num_common: int
) -> tuple[float, str]:
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
    if _is_number(expected) and _is_number(got):
        same = _is_near(got, expected, tolerance)
    else:
        same = type(expected) is type(got) and expected == got
    return None if same else f"{place} is {_shorten_value(got)}; expected {_shorten_value(expected)}"


def _is_number(value: Any) -> bool:
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


def _shorten_value(value: Any) -> str:
    return repr(value)[:_MAX_SHOWN_CHARS]
