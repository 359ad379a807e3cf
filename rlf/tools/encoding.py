"""How calls are written as requests (together, as a form, with lists and objects), and answers taken apart. Pure.

Lists and objects stand in a query or a form in the ways of OpenAPI 3 (3.1.1, "Style Examples").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any
from uuid import uuid4

from pydantic import Field

from rlf.core.errors import describe_type
from rlf.core.kinds import StrictModel


class BatchSpec(StrictModel):
    """How calls of many trajectories share one request. Its templates see `calls`, the arguments of each call."""

    max_size: int = Field(default=64, ge=1)
    """Calls in one request."""
    max_wait_ms: float = Field(default=5.0, ge=0, allow_inf_nan=False)
    """How long the first call of a request waits for others, in milliseconds."""
    answers: str = Field(min_length=1)
    """Path, as `response`, to the list that holds one answer per call in the order of `calls`."""


class BodyFormat(StrEnum):
    """How a body of fields is written."""

    JSON = "json"
    """One JSON value, or one text as it is."""
    FORM = "form"
    """`application/x-www-form-urlencoded`: fields as in a query."""
    MULTIPART = "multipart"
    """`multipart/form-data`: a part for each field."""


class Encoding(StrEnum):
    """How a list or an object in a query or form is written; without one a list is repeated, an object is JSON."""

    COMMA = "comma"
    """`ids=1,2`; an object as `color=R,100,G,200`."""
    SPACE = "space"
    """`ids=1%202`"""
    PIPE = "pipe"
    """`ids=1%7C2`"""
    FLAT = "flat"
    """An object's entries as fields of their own: `R=100&G=200`."""
    DEEP = "deep"
    """`color[R]=100&color[G]=200`, and so on inwards; items of a list by their index: `items[0][price]=5`."""
    JSON = "json"
    """`ids=[1,2]`"""
    FILE = "file"
    """In `multipart` alone: text as the content of a file."""


_BETWEEN = {Encoding.COMMA: ",", Encoding.SPACE: " ", Encoding.PIPE: "|"}


def encode_pairs(fields: Mapping[str, Any], encodings: Mapping[str, Encoding]) -> Iterator[tuple[str, str]]:
    """Names and texts of a query or a form; null is left out."""
    for name, value in fields.items():
        yield from _pairs_of(name, value, encodings.get(name))


def _pairs_of(name: str, value: Any, encoding: Encoding | None) -> Iterator[tuple[str, str]]:
    if encoding is Encoding.JSON:
        yield name, json.dumps(value, separators=(",", ":"))
    elif encoding is Encoding.DEEP:
        yield from _flatten_deep(name, value)
    elif encoding is Encoding.FLAT and isinstance(value, dict):
        yield from encode_pairs(value, {})
    elif encoding in _BETWEEN and isinstance(value, dict | list):
        in_a_row = value if isinstance(value, list) else [part for entry in value.items() for part in entry]
        if items := [_as_text(item) for item in in_a_row if item is not None]:
            yield name, _BETWEEN[encoding].join(items)
    else:
        yield from (
            (name, _as_text(item)) for item in (value if isinstance(value, list) else [value]) if item is not None
        )


def _flatten_deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flatten_deep(f"{name}[{key}]", child)
    elif value is not None:
        yield name, _as_text(value)


def _as_text(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def multipart(fields: Mapping[str, Any], encodings: Mapping[str, Encoding]) -> tuple[str, bytes]:
    """The content type and the bytes of a form with a part for each field; null is left out."""
    boundary = uuid4().hex
    parts = [part for name, value in fields.items() for part in _parts_of(name, value, encodings.get(name))]
    lines = [f"--{boundary}\r\n{head}\r\n\r\n{text}\r\n" for head, text in parts]
    return f"multipart/form-data; boundary={boundary}", "".join([*lines, f"--{boundary}--\r\n"]).encode()


def _parts_of(name: str, value: Any, encoding: Encoding | None) -> Iterator[tuple[str, str]]:
    for item in value if isinstance(value, list) and encoding is not Encoding.JSON else [value]:
        head = f'Content-Disposition: form-data; name="{_quote_name(name)}"'
        if encoding is Encoding.FILE:
            yield f'{head}; filename="{_quote_name(name)}"\r\nContent-Type: application/octet-stream', _as_text(item)
        elif isinstance(item, dict | list) or encoding is Encoding.JSON:
            yield f"{head}\r\nContent-Type: application/json", json.dumps(item)
        elif item is not None:
            yield head, _as_text(item)


def _quote_name(name: str) -> str:
    """A field's name as a header holds it (HTML, "Multipart form data")."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


# Paths into JSON: names, indices and `*` with dots between them, as in `result.*.document.contents`.


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
