"""Calls that satisfy a tool's schema, made from the schema alone, for certificates and the fuzzer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlf.types import ToolCall, ToolDescription

_TEXTS = ("Vell", 'say "hi", it\'s', "río Orr\n中文 \U0001f600", "{a: [1], b}, <c> \\d", "42")
NUM_VARIANTS = len(_TEXTS)
_MAX_LEVELS = 4


def example_call(tool: ToolDescription, variant: int = 0) -> ToolCall:
    """A call of a tool: with its required arguments alone in variant 0, with all of them in the others."""
    return ToolCall(tool.name, _object(tool.input_schema, variant, 0))


def _object(schema: Mapping[str, Any], variant: int, level: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    wanted = properties if variant else [name for name in properties if name in (schema.get("required") or ())]
    return {name: _value(properties[name], variant, level + 1) for name in wanted}


def _value(schema: Any, variant: int, level: int) -> Any:
    if not isinstance(schema, Mapping):
        return _TEXTS[variant % NUM_VARIANTS]
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return choices[variant % len(choices)]
    for key in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(key):
            return _value(options[0], variant, level)
    return _of_type(schema, variant, level)


def _of_type(schema: Mapping[str, Any], variant: int, level: int) -> Any:
    named = schema.get("type")
    names = named if isinstance(named, list) else [named]
    match next((name for name in names if name != "null"), "null"):
        case "integer":
            return int(_within(schema, 3 + variant))
        case "number":
            return _within(schema, 1.5 + variant)
        case "boolean":
            return variant % 2 == 0
        case "array":
            return [_value(schema.get("items"), variant, level + 1)] if level < _MAX_LEVELS else []
        case "object":
            return _object(schema, variant, level) if level < _MAX_LEVELS else {}
        case "null" if named is not None:
            return None
    return _TEXTS[variant % NUM_VARIANTS][: schema.get("maxLength")]


def _within(schema: Mapping[str, Any], number: float) -> float:
    low, high = schema.get("minimum", number), schema.get("maximum", number)
    return float(min(max(number, low), high)) if isinstance(number, float) else min(max(number, low), high)
