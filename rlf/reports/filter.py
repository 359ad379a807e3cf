"""Which runs a person means: `success > 0.8 and spec == "search" and started > -7d`.

An expression of names, numbers, quoted texts, `and`, `or`, `not`, `in` and comparisons; nothing else is evaluated.
A comparison with what a run has not is false.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from rlf.core import RlfError, nearest

Facts = Mapping[str, Any]
Test = Callable[[Facts], Any]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
# `7d` is not Python: it is rewritten to seconds before the filter is parsed. Quoted text stays as it is.
_SPAN = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([smhdw])\b")
_QUOTED = re.compile(r"(\"[^\"]*\"|'[^']*')")
_MAX_CHARS = 1000
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


def compile_filter(text: str, names: Mapping[str, str]) -> Test:
    """The test that an expression is.

    Args:
        names: what it may speak of, with what each is.

    Raises:
        RlfError: it is no such expression, or speaks of something else.
    """
    if len(text) > _MAX_CHARS:
        raise _make_refusal(text[:40] + "...", f"longer than {_MAX_CHARS} characters")
    try:
        tree = ast.parse(_spans_as_seconds(text), mode="eval")
    except SyntaxError as error:
        raise _make_refusal(text, f"{error.msg}") from error
    return _compile_node(tree.body, text, names)


def _spans_as_seconds(text: str) -> str:
    """`7d` as the number of its seconds, outside quotes."""
    parts = _QUOTED.split(text)
    parts[::2] = [_SPAN.sub(lambda m: str(float(m[1]) * _UNITS[m[2]]), part) for part in parts[::2]]
    return "".join(parts).strip()


def _compile_node(node: ast.expr, text: str, names: Mapping[str, str]) -> Test:
    def part(child: ast.expr) -> Test:
        return _compile_node(child, text, names)

    match node:
        case ast.BoolOp(op=op, values=values):
            tests, join = [part(value) for value in values], all if isinstance(op, ast.And) else any
            return lambda facts: join(test(facts) for test in tests)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            test = part(operand)
            return lambda facts: not test(facts)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda facts: -number
        case ast.Compare(left=left, ops=ops, comparators=rights):
            if all(type(op) in _COMPARE for op in ops):
                return _make_comparison(
                    [part(side) for side in (left, *rights)], [_COMPARE[type(op)] for op in ops], text
                )
        case ast.Name(id=name):
            if name not in names:
                raise _make_refusal(
                    text, f"unknown name {name!r}{nearest(name, list(names))} (known: {', '.join(names)})"
                )
            return lambda facts: facts.get(name)
        case ast.Constant(value=str() | int() | float() as value):
            return lambda facts: value
    raise _make_refusal(text, f"`{ast.unparse(node)}` is not understood")


def _make_comparison(sides: list[Test], compare: list[Callable[[Any, Any], bool]], text: str) -> Test:
    def test(facts: Facts) -> bool:
        values = [side(facts) for side in sides]
        try:
            return all(
                left is not None and right is not None and holds(left, right)
                for left, holds, right in zip(values, compare, values[1:], strict=False)
            )
        except TypeError as error:
            raise _make_refusal(text, f"compares unlike things: {error}") from error

    return test


def _make_refusal(text: str, reason: str) -> RlfError:
    return RlfError(f'{text!r}: {reason}. Write e.g. `success > 0.8 and spec == "search" and started > -7d`.')
