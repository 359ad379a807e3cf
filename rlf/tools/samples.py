"""Arguments made from an inputSchema alone, for tools without an example: the same ones every time. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rlf.core.plain_json import expanded, resolved
from rlf.tools.validate import ArgumentCheck

_MAX_LEVELS = 5
_WORD = "example"
_FORMATS: Mapping[str, str] = {
    "date": "2024-01-31",
    "date-time": "2024-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uuid4": "00000000-0000-4000-8000-000000000000",
    "path": "example.txt",
    "json-string": "{}",
    "base64": "ZXhhbXBsZQ==",
    "base64url": "ZXhhbXBsZQ==",
}
_FITTING = (_WORD, "EXAMPLE", "a", "A", "1", "12", "123", "1234", "12345", "a1", "A1", "1.0", "#ffffff", "en", "en-US")
"""Texts that patterns are tried with, beside those of the formats."""


def sample_arguments(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The required arguments, then all of them where there are others; only those that the schema admits."""
    whole = expanded(schema)
    properties, required = whole.get("properties") or {}, whole.get("required") or ()
    values = {name: _sample_value(child, whole, 0) for name, child in properties.items()}
    least = {name: value for name, value in values.items() if name in required}
    check = ArgumentCheck(schema)
    return [one for one in ([least] if least == values else [least, values]) if check.complaint(one) is None]


def _sample_value(schema: Any, whole: Mapping[str, Any], level: int) -> Any:
    schema = _one_of(resolved(schema, whole), whole)
    if "const" in schema:
        return schema["const"]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    if schema.get("default"):  # an empty one shows nothing of the type
        return schema["default"]
    named = schema.get("type")
    names = named if isinstance(named, list) else [named]
    match next((name for name in names if name != "null"), "null" if named else None):
        case "null":
            return None
        case "boolean":
            return True
        case "integer" | "number" as kind:
            return _sample_number(schema, whole_only=kind == "integer")
        case "array":
            first = [_sample_value(one, whole, level + 1) for one in schema.get("prefixItems") or ()]
            wanted = max(schema.get("minItems", 0), 1 if level < _MAX_LEVELS and not first else 0)
            if len(first) >= wanted:
                return first
            return first + [_sample_value(schema.get("items", {}), whole, level + 1)] * (wanted - len(first))
        case "object":
            return _sample_object(schema, whole, level)
    return _sample_object(schema, whole, level) if "properties" in schema else _sample_text(schema)


def _one_of(schema: dict[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with its first choice that is more than null, and with all of its parts."""
    for key in ("anyOf", "oneOf"):
        arms = [resolved(arm, whole) for arm in schema.get(key) or ()]
        arms = [arm for arm in arms if arm.get("type") != "null"] or arms
        schema = _one_of({**schema, **arms[0], key: arms[0].get(key)}, whole) if arms else schema
    for part in schema.get("allOf") or ():
        schema = {**schema, **resolved(part, whole), "allOf": None}
    return schema


def _sample_number(schema: Mapping[str, Any], *, whole_only: bool) -> float:
    """The number next to 1 within the bounds."""
    step = schema.get("multipleOf") or (1 if whole_only else 0)
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    gap = step or 0.5
    low = max(low, schema["exclusiveMinimum"] + gap) if "exclusiveMinimum" in schema else low
    high = min(high, schema["exclusiveMaximum"] - gap) if "exclusiveMaximum" in schema else high
    found = min(max(1, low), high)
    if step:
        found = math.ceil(found / step) * step
        found = found if found <= high else found - step
    return int(found) if whole_only else found


def _sample_text(schema: Mapping[str, Any]) -> str:
    fitting = _FORMATS.get(schema.get("format", ""), _WORD)
    if schema.get("contentMediaType") == "application/json":
        fitting = json.dumps(_sample_value(schema.get("contentSchema", {}), schema, _MAX_LEVELS))
    if "pattern" in schema:
        tried = (fitting, *_FITTING, *_FORMATS.values())
        fitting = next((one for one in tried if _matches_pattern(schema["pattern"], one)), fitting)
    return fitting.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]


def _matches_pattern(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # JSON Schema's patterns are those of ECMAScript
        return False


def _sample_object(schema: Mapping[str, Any], whole: Mapping[str, Any], level: int) -> dict[str, Any]:
    """All that it may hold, and below some depth only what it must."""
    required = schema.get("required") or ()
    return {
        name: _sample_value(child, whole, level + 1)
        for name, child in (schema.get("properties") or {}).items()
        if name in required or level < _MAX_LEVELS
    }
