"""Arguments written as bare text, read by the type that the tool's schema declares.

A parameter that can only be a string is its text, verbatim. Any other is JSON; where the schema does not say, what is
no JSON is text. `write_value` writes what `read_value` reads back as the same value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.chat.call_json import CallFault, read_json
from rlf.types import FailureClass, ToolDescription


def parameter_schemas(tools: Sequence[ToolDescription]) -> Mapping[str, Mapping[str, Any]]:
    """The schema of each parameter, by tool."""
    return {tool.name: tool.input_schema.get("properties") or {} for tool in tools}


def read_value(text: str, schema: Any) -> Any | CallFault:
    """The value that a text is, or why it is none. Never raises."""
    if _is_text(schema):
        return text
    stripped = text.strip(" \t\r\n")
    read = read_json(stripped, 0)
    whole = not isinstance(read, CallFault) and read[1] == len(stripped)
    if isinstance(read, CallFault) or not whole:
        if _may_be_text(schema):
            return text
        expected = schema.get("type") if isinstance(schema, Mapping) else None
        return CallFault(FailureClass.BAD_ARGUMENTS, f"expected JSON{f' of type {expected}' if expected else ''}")
    return read[0]


def write_value(value: Any, schema: Any) -> str:
    """The text of a value: a string as it is where that reads back, JSON otherwise."""
    if isinstance(value, str) and read_value(value, schema) == value and isinstance(read_value(value, schema), str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _is_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def _may_be_text(schema: Any) -> bool:
    """Whether a string satisfies the schema, as far as its `type` says."""
    if not isinstance(schema, Mapping):
        return True
    kinds = schema.get("type")
    return kinds is None or (isinstance(kinds, str | list) and "string" in kinds)
