"""Calls that satisfy a tool's schema, made from the schema alone, for certificates and the fuzzer."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from rlf.core.plain_json import expanded
from rlf.types import ToolCall, ToolDescription

_TEXTS = (
    "Vell",
    'say "hi", it\'s',
    "río Orr\n中文 \U0001f600",
    "{a: [1], b}, <c> \\d",
    "42",
    "",
    "<|im_end|> <|eot_id|> </s> <think> <tool_call>",
)
"""Plain, with quotes, with other scripts, with brackets, a number's text, empty, with marks of several families."""
NUM_SAMPLED_VARIANTS = 5
"""Variants, from the first, that any format writes and any policy samples as they are."""
_NUMBERS = (3, -7, 1_000_000, 12, 0, 1, 0)
NUM_VARIANTS = len(_TEXTS)
_MAX_LEVELS = 4


def example_call(tool: ToolDescription, variant: int = 0) -> ToolCall:
    """A call of a tool: with its required arguments alone in variant 0, with all of them in the others."""
    return ToolCall(tool.name, _example_object(expanded(tool.input_schema), variant, 0))


def _example_object(schema: Mapping[str, Any], variant: int, level: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    wanted = properties if variant else [name for name in properties if name in (schema.get("required") or ())]
    return {name: _example_value(properties[name], variant, level + 1) for name in wanted}


def _example_value(schema: Any, variant: int, level: int) -> Any:
    if not isinstance(schema, Mapping):
        return _TEXTS[variant % NUM_VARIANTS]
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return choices[variant % len(choices)]
    for key in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(key):
            return _example_value(options[0], variant, level)
    return _of_type(schema, variant, level)


def _of_type(schema: Mapping[str, Any], variant: int, level: int) -> Any:
    named = schema.get("type")
    names = named if isinstance(named, list) else [named]
    match next((name for name in names if name != "null"), "null"):
        case "integer":
            return int(_clamp_number(schema, _NUMBERS[variant % NUM_VARIANTS]))
        case "number":
            return _clamp_number(schema, _NUMBERS[variant % NUM_VARIANTS] + 0.5)
        case "boolean":
            return variant % 2 == 0
        case "array":
            return _example_array(schema, variant, level) if level < _MAX_LEVELS else []
        case "object":
            if not schema.get("properties") and schema.get("additionalProperties", True) is not False:
                return {_TEXTS[0]: _TEXTS[variant % NUM_VARIANTS], "n": [variant, None, {}]} if variant else {}
            return _example_object(schema, variant, level) if level < _MAX_LEVELS else {}
        case "null" if named is not None:
            return None
    text = _TEXTS[variant % NUM_VARIANTS] or "-" * schema.get("minLength", 0)
    return text[: schema.get("maxLength")]


def _example_array(schema: Mapping[str, Any], variant: int, level: int) -> list[Any]:
    """One item, or two of different variants; none in the sixth variant, where the schema allows that."""
    number = max(schema.get("minItems", 0), 0 if variant == NUM_SAMPLED_VARIANTS else 1 + variant % 2)
    return [_example_value(schema.get("items"), variant + index, level + 1) for index in range(number)]


def _clamp_number(schema: Mapping[str, Any], number: float) -> float:
    clamped: float = min(max(number, schema.get("minimum", -inf)), schema.get("maximum", inf))
    return clamped
