"""Paths into JSON: names, indices and `*` with dots between them, as in `result.*.document.contents`."""

from __future__ import annotations

from functools import cache
from typing import Any

from rlf.core.errors import describe_type


class NoSuchPart(LookupError):
    """The value has nothing at the path; the message says where it ends and what is there."""


def part_at(value: Any, path: str) -> Any:
    """The part of a JSON value at a path; `*` gives the list of what follows it in each item.

    >>> part_at({"result": [{"text": "a"}, {"text": "b"}]}, "result.*.text")
    ['a', 'b']
    """
    return _find_part(value, _split_path(path), path)


@cache
def _split_path(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _find_part(value: Any, keys: tuple[str, ...], path: str) -> Any:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    if key == "*":
        items = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else None
        if items is not None:
            return [_find_part(item, rest, path) for item in items]
    elif isinstance(value, dict) and key in value:
        return _find_part(value[key], rest, path)
    elif isinstance(value, list) and key.removeprefix("-").isdecimal() and -len(value) <= int(key) < len(value):
        return _find_part(value[int(key)], rest, path)
    raise NoSuchPart(f"the answer has no {path!r}: {describe_part(value)} where {key!r} should be")


def describe_part(value: Any) -> str:
    """What a JSON value is, with the keys of an object."""
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:8])) or 'no keys'}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return describe_type(value)
