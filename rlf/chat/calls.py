"""Calls written as JSON objects `{"name": ..., "arguments": {...}}`, read strictly.

Nothing is repaired. What is no such object is a `CallFault` of one class with the fix in words; formats that write
calls as JSON share this file and add their own tags around it.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlf.core.plain_json import MAX_DEPTH, RefusedJson, decode_json, quote_short
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


def read_json(text: str, start: int) -> tuple[Any, int] | CallFault:
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


# Calls written as a Python list of calls with literal arguments, `[f(a=1), g(b="x")]`; nothing is evaluated.

FORM_CALL_PYTHON = '[name(argument="value", other=1)]'
_STRING_FORM = (
    r'"""(?:[^"\\]|\\.|"(?!""))*+"""|'
    r"'''(?:[^'\\]|\\.|'(?!''))*+'''|"
    r'"(?:[^"\\BREAK]|\\.)*+"|'
    r"'(?:[^'\\BREAK]|\\.)*+'"
)
STRING = _STRING_FORM.replace("BREAK", r"\n")
"""A string as Python writes it; `.` must match line breaks."""
_BRACKETS = r"""[()\[\]{}"']"""
_TOKEN = re.compile(f"{STRING}|{_BRACKETS}", re.DOTALL)
# The same where a text may hold a line break as it is, which Python does not allow between single quotes.
_LOOSE_TOKEN = re.compile(f"{_STRING_FORM.replace('BREAK', '')}|{_BRACKETS}", re.DOTALL)
_ESCAPES = {"\n": "\\n", "\r": "\\r"}
_JSON_NAMES: Mapping[str, Any] = {"true": True, "false": False, "null": None}


class _NoLiteralError(ValueError):
    """An argument that is no literal with a JSON value."""


def list_end(text: str, start: int, *, raw_breaks: bool = False) -> int | None:
    """Where the list that begins at `start` closes, its strings skipped; None when it does not.

    Args:
        raw_breaks: whether a string in single quotes may hold a line break; see `escape_breaks`.
    """
    depth = 0
    for match in (_LOOSE_TOKEN if raw_breaks else _TOKEN).finditer(text, start):
        token = match.group()
        if token in ("(", "[", "{"):
            depth += 1
        elif token in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return match.end()
        elif len(token) == 1:
            return None
    return None


def escape_breaks(text: str) -> str:
    """A list whose texts hold line breaks as they are, as LFM2 writes them, with escapes in their place."""
    return _LOOSE_TOKEN.sub(_escape_token, text)


def _escape_token(token: re.Match[str]) -> str:
    found = token.group()
    if len(found) < 2 or found[:3] in ('"""', "'''"):
        return found
    return re.sub(r"(?<!\\)((?:\\\\)*)([\r\n])", lambda at: at[1] + _ESCAPES[at[2]], found)


def read_calls(text: str) -> list[ToolCall | CallFault] | CallFault:
    """The calls of a list, each read or refused, or why the text is no list of calls. Never raises."""
    tree = _parse(text)
    if isinstance(tree, CallFault):
        return tree
    if len(tree) != 1 or not isinstance(tree[0], ast.List) or not tree[0].elts:
        return _list_fault("it is no list of calls")
    return [_read_call(element) for element in tree[0].elts]


def read_statements(text: str) -> list[ToolCall | CallFault] | CallFault:
    """The calls of a text, one a line, each read or refused, or why the text has none. Never raises."""
    tree = _parse(text.strip())
    if isinstance(tree, CallFault):
        return tree
    return [_read_call(statement) for statement in tree] or _list_fault("there is no call")


def write_list(calls: Sequence[ToolCall]) -> str:
    """The canonical text of a list of calls; the caller checks that it reads back."""
    return f"[{', '.join(map(write_call, calls))}]"


def write_call(call: ToolCall) -> str:
    """The canonical text of one call; the caller checks that it reads back."""
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def _parse(text: str) -> list[ast.expr] | CallFault:
    """The expressions that a text is made of, one a line."""
    if sum(map(text.count, "([{")) > MAX_DEPTH and _measure_depth_call_python(text) > MAX_DEPTH:
        return _list_fault(f"it is nested deeper than {MAX_DEPTH} levels")
    if _joins_strings(text):
        return _list_fault("two strings follow each other without a comma")
    try:
        statements = _parse_module(text).body
    except SyntaxError as error:
        return _list_fault(str(error.msg).partition(" (")[0])
    except (ValueError, RecursionError, MemoryError):
        return _list_fault("it cannot be read")
    found = [statement.value for statement in statements if isinstance(statement, ast.Expr)]
    return found if len(found) == len(statements) else _list_fault("it holds something that is no call")


def _joins_strings(text: str) -> bool:
    """Whether Python would make one string of two, which a missing comma leaves beside each other."""
    end = -1
    for match in _TOKEN.finditer(text):
        if len(match.group()) > 1:
            if end >= 0 and not text[end : match.start()].strip():
                return True
            end = match.end()
    return False


def _parse_module(text: str) -> ast.Module:
    if "\\" not in text:
        return ast.parse(text)
    with warnings.catch_warnings():
        # An escape that Python does not know ("\d") stays what it is; Python warns of it.
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _read_call(node: ast.expr) -> ToolCall | CallFault:
    name = _dotted_name(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or not name:
        return CallFault(FailureClass.BAD_CALL, f"The list holds something that is no call. Write {FORM_CALL_PYTHON}.")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return CallFault(
            FailureClass.BAD_ARGUMENTS, f"An argument of {name[:24]} has no name. Write {FORM_CALL_PYTHON}."
        )
    if len({keyword.arg for keyword in node.keywords}) != len(node.keywords):
        return CallFault(
            FailureClass.BAD_ARGUMENTS, f"An argument of {name[:24]} is given twice. Write {FORM_CALL_PYTHON}."
        )
    try:
        arguments = {str(keyword.arg): _read_literal(keyword.value) for keyword in node.keywords}
        json.dumps(arguments, ensure_ascii=False).encode()
    except (_NoLiteralError, UnicodeEncodeError) as error:
        what = str(error) if isinstance(error, _NoLiteralError) else "half of a surrogate pair"
        return CallFault(
            FailureClass.BAD_ARGUMENTS, f"An argument of {name[:24]} is no literal: {what}. Write {FORM_CALL_PYTHON}."
        )
    return ToolCall(name, arguments)


def _dotted_name(node: ast.expr) -> str:
    """The dotted name of a function; empty when it is something else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _read_literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=None | bool() | str() | int()):
            return node.value
        case ast.Constant(value=float()) if math.isfinite(float(str(node.value))):
            return node.value
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_read_literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            table = {
                name: _read_literal(value) for name, value in zip(names, values, strict=True) if isinstance(name, str)
            }
            if len(table) != len(keys):
                raise _NoLiteralError("a key that is no string, or is given twice")
            return table
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as number)):
            if not isinstance(number, bool) and math.isfinite(number):
                return -number if isinstance(sign, ast.USub) else number
    raise _NoLiteralError(ast.unparse(node)[:24])


def _measure_depth_call_python(text: str) -> int:
    depth = deepest = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        deepest = max(deepest, depth)
    return deepest


def _list_fault(reason: str) -> CallFault:
    return CallFault(FailureClass.BAD_CALL, f"The list of calls is not valid: {reason[:60]}. Write {FORM_CALL_PYTHON}.")
