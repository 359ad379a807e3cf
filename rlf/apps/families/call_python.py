"""Calls written as a Python list of calls with literal arguments, `[f(a=1), g(b="x")]`; nothing is evaluated."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.chat.calls import CallFault
from rlf.core.plain_json import MAX_DEPTH
from rlf.types import FailureClass, ToolCall

FORM = '[name(argument="value", other=1)]'
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


def read_call_list(text: str) -> list[ToolCall | CallFault] | CallFault:
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
    if sum(map(text.count, "([{")) > MAX_DEPTH and _measure_depth(text) > MAX_DEPTH:
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
        return CallFault(FailureClass.BAD_CALL, f"The list holds something that is no call. Write {FORM}.")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return CallFault(FailureClass.BAD_ARGUMENTS, f"An argument of {name[:24]} has no name. Write {FORM}.")
    if len({keyword.arg for keyword in node.keywords}) != len(node.keywords):
        return CallFault(FailureClass.BAD_ARGUMENTS, f"An argument of {name[:24]} is given twice. Write {FORM}.")
    try:
        arguments = {str(keyword.arg): _read_literal(keyword.value) for keyword in node.keywords}
        json.dumps(arguments, ensure_ascii=False).encode()
    except (_NoLiteralError, UnicodeEncodeError) as error:
        what = str(error) if isinstance(error, _NoLiteralError) else "half of a surrogate pair"
        return CallFault(FailureClass.BAD_ARGUMENTS, f"An argument of {name[:24]} is no literal: {what}. Write {FORM}.")
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


def _measure_depth(text: str) -> int:
    depth = deepest = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        deepest = max(deepest, depth)
    return deepest


def _list_fault(reason: str) -> CallFault:
    return CallFault(FailureClass.BAD_CALL, f"The list of calls is not valid: {reason[:60]}. Write {FORM}.")
