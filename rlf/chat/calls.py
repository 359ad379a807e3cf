"""Calls written as JSON objects `{"name": ..., "arguments": {...}}`, read strictly.

Nothing is repaired. What is no such object is a `CallFault` of one class with the fix in words; formats that write
calls as JSON share this file and add their own tags around it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from rlf.core.plain_json import RefusedJson, decode_json, quote_short
from rlf.types import FailureClass, ToolCall

FORM = '{"name": ..., "arguments": {...}}'
_KEYS = frozenset({"name", "arguments"})
# Searched only where the JSON decoder has stopped, so a comma inside a string cannot match.
_TRAILING_COMMA = re.compile(r",\s*[}\]]")


@dataclass(frozen=True, slots=True)
class CallFault:
    """Why a text is no call."""

    kind: FailureClass
    message: str

    def asking_for(self, form: str) -> CallFault:
        """The same fault of JSON, with the form of a call that a format asks for."""
        return replace(self, message=self.message.replace(f"Write {FORM}.", form))


def json_at(text: str, start: int) -> tuple[Any, int] | CallFault:
    """The JSON value at `start` and where it ends, or a BAD_JSON fault. Never raises."""
    try:
        return decode_json(text, start)
    except json.JSONDecodeError as error:
        return _bad_json(_explain_error(text, start, error))
    except RefusedJson as error:
        return _bad_json(str(error))


def write_json(value: Any) -> str:
    """JSON as every format writes it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def as_call(value: Any) -> ToolCall | CallFault:
    """The call that a JSON value is."""
    if not isinstance(value, dict):
        got = "a list" if isinstance(value, list) else "no object"
        return CallFault(FailureClass.BAD_CALL, f"The block holds {got}. Write one {FORM} per block.")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return CallFault(FailureClass.MISSING_NAME, f'The call has no "name" of a tool. Write {FORM}.')
    arguments = value.get("arguments")
    if not isinstance(arguments, dict):
        return CallFault(FailureClass.BAD_ARGUMENTS, _explain_arguments(value))
    if len(value) != len(_KEYS):
        extra = ", ".join(quote_short(key) for key in list(value.keys() - _KEYS)[:2])
        return CallFault(FailureClass.BAD_CALL, f"A call has no key {extra}. Write {FORM}.")
    return ToolCall(name, arguments)


def _bad_json(reason: str) -> CallFault:
    return CallFault(FailureClass.BAD_JSON, f"The call is not valid JSON: {reason}. Write {FORM}.")


def _explain_error(text: str, start: int, error: json.JSONDecodeError) -> str:
    """Names the usual mistakes; the words of the decoder for the others."""
    at = text[error.pos : error.pos + 1]
    if text.startswith("```", start):
        return "remove the code fence"
    if at == "'":
        return "use double quotes"
    # Python 3.13 reports the comma, earlier versions what follows it.
    if _TRAILING_COMMA.match(text, max(start, len(text[: error.pos].rstrip(" \t\r\n,")))):
        return "remove the trailing comma"
    if "control character" in error.msg:
        return "write a line break inside a string as \\n"
    if error.msg.startswith("Unterminated string"):
        return "a string is not closed"
    if at in ("", "<"):
        return "a brace or bracket is not closed" if error.pos > start else "the block is empty"
    return f"{error.msg.split(':')[0]} at character {error.pos - start + 1}"


def _explain_arguments(value: dict[str, Any]) -> str:
    if "arguments" not in value and "parameters" in value:
        return f'Write "arguments" instead of "parameters": {FORM}.'
    if isinstance(value.get("arguments"), str):
        return f'"arguments" is a string; expected a JSON object without quotes around it. Write {FORM}.'
    got = "is no JSON object" if "arguments" in value else "is missing"
    return f'"arguments" {got}. Write {FORM}, with {{}} when there are none.'
