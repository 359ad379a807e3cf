"""inputSchema: checked when a tool is declared, compiled once, never fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

_OPENING_KEYWORDS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"}
)


def compile_schema(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """A validator of JSON Schema 2020-12. Raises jsonschema_rs.ValidationError with the path of what is wrong."""
    return jsonschema_rs.Draft202012Validator(dict(schema), retriever=_refuse)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with unnamed arguments refused, unless it speaks of them itself.

    A model that misspells an optional argument must hear of it, and a function takes no argument it does not name.
    """
    if "properties" not in schema or _OPENING_KEYWORDS & schema.keys():
        return dict(schema)
    return {**schema, "additionalProperties": False}


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not part of the schema; put it under `$defs`")
