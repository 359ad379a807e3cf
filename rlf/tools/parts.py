"""Paths into JSON: names, indices and `*` with dots between them, as in `result.*.document.contents`."""

from __future__ import annotations

from typing import Any

from rlf.core.errors import describe_type


class NoSuchPart(LookupError):
    """The value has nothing at the path; the message says where it ends and what is there."""


def part_at(value: Any, path: str, depth: int = 0) -> Any:
    """The part of a JSON value at a path; `*` gives the list of what follows it in each item.

    Args:
        depth: keys of the path that lead to the value.

    >>> part_at({"result": [{"text": "a"}, {"text": "b"}]}, "result.*.text")
    ['a', 'b']
    """
    for key in path.split(".")[depth:]:
        depth += 1
        if key == "*" and isinstance(value, list | dict):
            items = value if isinstance(value, list) else value.values()
            return [part_at(item, path, depth) for item in items]
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.removeprefix("-").isdecimal() and -len(value) <= int(key) < len(value):
            value = value[int(key)]
        else:
            raise NoSuchPart(f"the answer has no {path!r}: {describe_part(value)} where {key!r} should be")
    return value


def describe_part(value: Any) -> str:
    """What a JSON value is, with the keys of an object."""
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:8])) or 'no keys'}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return describe_type(value)
