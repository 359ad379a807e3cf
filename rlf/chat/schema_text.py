"""Arguments written as bare text, read by the type that the tool's schema declares.

A parameter that can only be a string is its text, verbatim. Any other is JSON; where the schema does not say, what is
no JSON is text, as is JSON of no type that the schema names beside string. `write_value` writes what `read_value` reads
back as the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlf.chat.call_json import CallFault, read_json, write_json
from rlf.core.json_schema import expanded
from rlf.types import FailureClass, ToolDescription

_DEFINITIONS = re.compile(r"(?<!/)\$defs")
"""The definitions themselves, not a reference into them."""
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def parameter_schemas(tools: Sequence[ToolDescription]) -> Mapping[str, Mapping[str, Any]]:
    """The schema of each parameter, by tool, with definitions in place of references."""
    return {tool.name: expanded(tool.input_schema).get("properties") or {} for tool in tools}


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
    return [_with_definitions(tool) for tool in described]


def _with_definitions(tool: Any) -> Any:
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": expanded(function["parameters"])}}


def read_value(text: str, schema: Any) -> Any | CallFault:
    """The value that a text stands for, or why it has none. Never raises."""
    types = _named_types(schema)
    if types == {"string"}:
        return text
    stripped = text.strip(" \t\r\n")
    read = read_json(stripped, 0)
    whole = not isinstance(read, CallFault) and read[1] == len(stripped)
    if isinstance(read, CallFault) or not whole:
        if not types or "string" in types:
            return text
        named = " or ".join(sorted(types))
        return CallFault(FailureClass.BAD_ARGUMENTS, f"expected JSON of type {named}")
    value = read[0]
    return text if "string" in types and not any(_is_of(value, name) for name in types) else value


def write_value(value: Any, schema: Any) -> str:
    """The text of a value: a string as it is where that reads back, JSON otherwise."""
    if isinstance(value, str) and read_value(value, schema) == value and isinstance(read_value(value, schema), str):
        return value
    return write_json(value)


def _named_types(schema: Any) -> frozenset[str]:
    """The types that a schema names itself or in its choices; empty where any may be meant."""
    if not isinstance(schema, Mapping):
        return frozenset()
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset((named,))
    if isinstance(named, list):
        return frozenset(name for name in named if isinstance(name, str))
    choices = schema.get("anyOf") or schema.get("oneOf")
    found = [_named_types(choice) for choice in choices] if isinstance(choices, list) else []
    return frozenset().union(*found) if all(found) else frozenset()


def _is_of(value: Any, name: str) -> bool:
    """Whether a JSON value is of the type; a boolean is no number."""
    kinds = _PYTHON_TYPES.get(name, ())
    return isinstance(value, kinds) and (name == "boolean" or not isinstance(value, bool))
