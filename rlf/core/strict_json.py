"""JSON as the standard has it: no NaN, no number beyond a float, no key twice, no half of a surrogate pair."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 64
"""Levels of nesting that a value may have: far below what would exhaust the stack anywhere downstream."""


class RefusedJson(ValueError):
    """JSON as Python reads it, but not JSON as the standard has it."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        raise RefusedJson(f"duplicate key {quote_short(next(key for key in keys if keys.count(key) > 1))}")
    return table


def _parse_finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise RefusedJson(f"the number {quote_short(literal)} is too large")
    return number


def _refuse_constant(literal: str) -> None:
    raise RefusedJson(f"{literal} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_float=_parse_finite, parse_constant=_refuse_constant
)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value at `start`, and where it ends.

    Raises:
        json.JSONDecodeError: there is no JSON.
        RefusedJson: it is what the standard does not have, or nested too deep.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (json.JSONDecodeError, RefusedJson):
        raise
    except ValueError as fault:
        raise RefusedJson("a number has too many digits") from fault
    except RecursionError as fault:
        raise RefusedJson(f"it is nested deeper than {MAX_DEPTH} levels") from fault
    if text.count("{", start, end) + text.count("[", start, end) > MAX_DEPTH and _measure_depth(value) > MAX_DEPTH:
        raise RefusedJson(f"it is nested deeper than {MAX_DEPTH} levels")
    if not _is_unicode(value, text, start, end):
        raise RefusedJson("it holds half of a surrogate pair")
    return value, end


def quote_short(text: str) -> str:
    """A quoted word for a message, cut and with nothing that breaks a line."""
    return json.dumps(text if len(text) <= 24 else text[:24] + "...")


def _measure_depth(value: Any) -> int:
    """Levels of nesting, counted level by level so that no depth exhausts the stack."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth


def _is_unicode(value: Any, text: str, start: int, end: int) -> bool:
    """Whether every string can be encoded; only escapes and raw surrogates can make one that cannot."""
    source = text[start:end]
    if source.isascii() and "\\u" not in source:
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
