"""Frozen values as plain JSON: the form that commands print and that results give in Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any

VERSION = "1"
"""Of the envelope around what commands print."""


class Jsonable:
    """A dataclass that knows its JSON. `JSON_PROPERTIES` names the properties that belong to it beside the fields.

    A mapping there gives each its name in JSON. A field with `metadata["optional"]` is left out where it is None.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The value as plain JSON, as `rlf ... --json` prints it."""
        found: dict[str, Any] = as_json(self)
        return found


def json_fields(kind: Any) -> list[tuple[str, Field[Any]]]:
    """The fields of a dataclass with their names in JSON: their own, or `metadata["json"]`; None leaves a field out.

    A run's id is `run_id` everywhere, also where the dataclass is the run's own record.
    """
    named = [(field.metadata.get("json", field.name), field) for field in fields(kind)]
    return [(name, field) for name, field in named if name is not None]


def json_properties(kind: Any) -> Mapping[str, str]:
    """The properties that belong to the JSON of a dataclass, by their names in JSON."""
    names = getattr(kind, "JSON_PROPERTIES", ())
    return names if isinstance(names, Mapping) else dict(zip(names, names, strict=True))


def as_json(value: Any) -> Any:
    """A value as plain JSON: dataclasses as objects, numbers that are not finite as null, paths as text."""
    if is_dataclass(value) and not isinstance(value, type):
        fields_of = [(name, getattr(value, field.name), field) for name, field in json_fields(value)]
        own = {name: as_json(at) for name, at, field in fields_of if at is not None or "optional" not in field.metadata}
        return own | {name: as_json(getattr(value, source)) for name, source in json_properties(type(value)).items()}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [as_json(item) for item in value]
    assert isinstance(value, Path) or hasattr(value, "isoformat"), f"{type(value).__name__} has no JSON form"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# References within a JSON Schema. Pure; nothing is fetched from anywhere.

_MAX_HOPS = 16
_MAX_EXPANSIONS = 1000
"""References that are followed in one schema: definitions that double each other would fill the memory."""
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data, where `$ref` is a key like any other."""


def resolved(schema: Any, whole: Mapping[str, Any]) -> dict[str, Any]:
    """The schema that a `$ref` into `whole` stands for, with what stands beside it; any other mapping as it is.

    Empty, which admits anything, for what is no mapping and for a reference that leads nowhere.
    """
    found: dict[str, Any] = {}
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping):
            break
        found = {**{key: child for key, child in schema.items() if key != "$ref"}, **found}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            break
        schema = _follow_pointer(reference, whole)
    return found


def expanded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with definitions in place of references; within itself a recursive one stays a reference."""
    found: dict[str, Any] = _Expansion(schema).of({key: child for key, child in schema.items() if key != "$defs"}, ())
    if "$defs" in schema and _has_references(found):
        return {**found, "$defs": schema["$defs"]}
    return found


class _Expansion:
    """One walk through a schema."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._num_left = _MAX_EXPANSIONS

    def of(self, schema: Any, within: tuple[str, ...]) -> Any:
        """A part of the schema, inside of the definitions `within`."""
        if isinstance(schema, list | tuple):
            return [self.of(child, within) for child in schema]
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = _follow_pointer(reference, self._whole)
            if reference in within or self._num_left <= 0 or not isinstance(target, Mapping):
                return dict(schema)
            self._num_left -= 1
            beside = {key: child for key, child in schema.items() if key != "$ref"}
            return self.of({**target, **beside}, (*within, reference))
        return {key: child if key in _DATA else self.of(child, within) for key, child in schema.items()}


def _has_references(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_has_references, schema))
    if not isinstance(schema, Mapping):
        return False
    return isinstance(schema.get("$ref"), str) or any(
        _has_references(child) for key, child in schema.items() if key not in _DATA
    )


def _follow_pointer(reference: str, whole: Mapping[str, Any]) -> Any:
    """The value that a pointer such as `#/$defs/Point` leads to; None where there is none."""
    if not reference.startswith("#"):
        return None
    found: Any = whole
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
