"""References within a JSON Schema. Pure; nothing is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
