"""References within a JSON Schema. Pure; nothing is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_HOPS = 16


def resolved(schema: Any, whole: Mapping[str, Any]) -> Mapping[str, Any]:
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
        schema = _at(reference, whole)
    return found


def _at(reference: str, whole: Mapping[str, Any]) -> Any:
    """What a pointer such as `#/$defs/Point` leads to; None where that is nothing."""
    if not reference.startswith("#"):
        return None
    found: Any = whole
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
