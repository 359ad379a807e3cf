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
