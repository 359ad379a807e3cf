"""Values by value and type: whether what a tool returned holds a gold as one whole value, never as a part of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from rlf.rewards.normalization import normalize

ValueKey: TypeAlias = tuple[str, Any]
"""Equal for equal values: numbers by number, truth by truth, texts once they are normalised."""


def value_key(value: Any) -> ValueKey | None:
    """The key of one value; None for nothing, a list or a mapping.

    >>> value_key("The Elbe ") == value_key("the elbe"), value_key(1) == value_key(1.0), value_key(1) == value_key("1")
    (True, True, False)
    """
    if isinstance(value, str):
        return "text", _normal(value)
    if isinstance(value, bool):
        return "truth", value
    return ("number", value) if isinstance(value, int | float) else None


def value_keys(found: Any) -> frozenset[ValueKey]:
    """The keys of every value within a JSON value; the names of an object's fields are none."""
    keys: set[ValueKey] = set()
    _add_keys(found, keys)
    return frozenset(keys)


def _add_keys(value: Any, keys: set[ValueKey]) -> None:
    if isinstance(value, dict | list | tuple):
        for child in value.values() if isinstance(value, dict) else value:
            _add_keys(child, keys)
    elif (key := value_key(value)) is not None:
        keys.add(key)


@lru_cache(maxsize=65_536)
def text_keys(text: str) -> frozenset[ValueKey]:
    """The keys of what a text holds: its values where it is JSON, and it as a whole."""
    whole = frozenset([("text", _normal(text))])
    if text[:1].isalpha() and text not in ("true", "false", "null"):
        return whole
    try:
        return value_keys(json.loads(text)) | whole
    except (ValueError, RecursionError):
        return whole


@lru_cache(maxsize=65_536)
def _normal(text: str) -> str:
    """The normalised text; one that a normalisation leaves nothing of as it stands."""
    if text.isalnum() and text.isascii():  # one word, which is its own normal form but for case
        return text.casefold()
    return normalize(text) or text.strip()


class Finding(NamedTuple):
    """One call: its tool, the values within its result, and those within its arguments."""

    tool: str
    found: frozenset[ValueKey]
    given: frozenset[ValueKey]


Golds: TypeAlias = Mapping[str, Sequence[ValueKey | None]]
"""The keys of the golds by tool."""


def keyed_golds(golds: Mapping[str, Iterable[Any]]) -> Golds:
    """Golds by tool as their keys."""
    return {tool: [value_key(gold) for gold in found] for tool, found in golds.items()}


def count_solved(calls: Iterable[Finding], golds: Golds) -> int:
    """Sub-questions that calls solve: each ticks the first open gold of its tool that it found and was not given."""
    left = {tool: [*keys] for tool, keys in golds.items()}
    solved = 0
    for tool, found, given in calls:
        if not found:
            continue
        for key in left.get(tool, ()):
            if key in found and key not in given:
                left[tool].remove(key)
                solved += 1
                break
    return solved
