"""Arguments written as bare text, read as what the tool's schema accepts (`rlf.core.readings`).

An argument that can only be a string is its text, verbatim. Any other is the JSON that the text holds where the schema
accepts that, else the text. `write_value` writes what `read_value` reads back as the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlf.chat.call_json import CallFault, write_json
from rlf.core.plain_json import expanded
from rlf.core.readings import ANYTHING, Readings
from rlf.types import FailureClass, ToolDescription

_DEFINITIONS = re.compile(r"(?<!/)\$defs")
"""The definitions themselves, not a reference into them."""
_LITERALS = {"True": ("true", "boolean"), "False": ("false", "boolean"), "None": ("null", "null")}
"""How Python prints these values, as JSON and as the type that the schema must admit."""


def readings_by_tool(tools: Sequence[ToolDescription]) -> Mapping[str, Readings]:
    """How the arguments of each tool are read."""
    return {tool.name: readings_of(tool) for tool in tools}


def readings_of(tool: ToolDescription) -> Readings:
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
    return [_with_definitions(tool) for tool in described]


def _with_definitions(tool: Any) -> Any:
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": expanded(function["parameters"])}}


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
    if isinstance(value, str) and _is_same_text(read(value, readings, name), value):
        return value
    return write_json(value)


def _is_same_text(read: Any, value: str) -> bool:
    return isinstance(read, str) and read == value
