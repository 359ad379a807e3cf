"""Calls that satisfy a tool's schema, made from the schema alone, for certificates and the tests of parsers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from rlf.chat.calls import CallFault, write_json
from rlf.core.plain_json import expanded
from rlf.core.readings import ANYTHING, Readings
from rlf.types import FailureClass, ToolCall, ToolDescription

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


# Arguments written as bare text, read as what the tool's schema accepts (`rlf.core.readings`).
#
# An argument that can only be a string is its text, verbatim. Any other is the JSON that the text holds where the
# schema accepts that, else the text. `write_value` writes what `read_value` reads back as the same value.

_DEFINITIONS = re.compile(r"(?<!/)\$defs")
"""The definitions themselves, not a reference into them."""
_LITERALS = {"True": ("true", "boolean"), "False": ("false", "boolean"), "None": ("null", "null")}
"""How Python prints these values, as JSON and as the type that the schema must admit."""


def readings_of(tool: ToolDescription) -> Readings:
    """How the arguments of a tool are read."""
    try:
        return Readings(tool.input_schema)
    except ValueError:  # a schema that a client sent, or that refers to what it does not hold
        return ANYTHING


def tools_of_template(tools: Sequence[Any], render: Callable[[list[Any]], str]) -> list[Any]:
    """Tools in the OpenAI form as a chat template shows all of them.

    A template that writes types of its own instead of the schema leaves `$defs` out: it gets the definitions in place
    of references.

    Args:
        render: a prompt with such tools.
    """
    described = list(tools)
    have_definitions = any("$defs" in tool["function"]["parameters"] for tool in described)
    if not have_definitions or _DEFINITIONS.search(render(described)):
        return described
    functions = [{**tool["function"], "parameters": expanded(tool["function"]["parameters"])} for tool in described]
    return [{**tool, "function": function} for tool, function in zip(described, functions, strict=True)]


def read_value(text: str, readings: Readings, name: str) -> Any | CallFault:
    """The value that a text stands for as the argument `name`, or why it has none. Never raises."""
    try:
        return readings.read_text(name, text)
    except ValueError as fault:
        return CallFault(FailureClass.BAD_ARGUMENTS, str(fault))


def read_printed(text: str, readings: Readings, name: str) -> Any | CallFault:
    """As `read_value`, from a template that writes values as Python prints them: `True`, `None`."""
    literal = _LITERALS.get(text)
    if literal is not None:
        admitted = readings.admitted(name)
        text = literal[0] if literal[1] in admitted.every_kind and not admitted.is_anything else text
    return read_value(text, readings, name)


def write_value(value: Any, readings: Readings, name: str, read: Callable[..., Any] = read_value) -> str:
    """The text of a value: a string as it is where `read` gives it back, JSON otherwise."""
    if isinstance(value, str) and read(value, readings, name) == value:
        return value
    return write_json(value)
