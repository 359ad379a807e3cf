"""A calculator for the four operations, powers, brackets: exact integers where it can, no `eval`.

Everything outside that grammar is refused with a reason, and so is work that grows without bound: long or deep
expressions, huge powers, huge results.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["calculator"]

_MAX_CHARACTERS = 200
_MAX_DEPTH = 20
_MAX_EXPONENT = 64
_MAX_MAGNITUDE = 10**30

_Number: TypeAlias = int | float

_BINARY: dict[type[ast.operator], Callable[[_Number, _Number], _Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[_Number], _Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def calculator(expression: str) -> str:
    """Work out an arithmetic expression such as `(12 + 30) * 4`.

    Raises:
        ValueError: the expression is not arithmetic, divides by zero or grows too large; the text says which.
    """
    if len(expression) > _MAX_CHARACTERS:
        raise ValueError(f"expression has {len(expression)} characters; at most {_MAX_CHARACTERS} are allowed")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        raise ValueError(f"{expression!r} is not an arithmetic expression; write e.g. (12 + 30) * 4") from fault
    value = _evaluate_node(tree.body, 0)
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.10g}"
    return str(int(value))


def _evaluate_node(node: ast.expr, depth: int) -> _Number:
    if depth > _MAX_DEPTH:
        raise ValueError(f"expression is nested deeper than {_MAX_DEPTH} levels")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_evaluate_node(operand, depth + 1))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_evaluate_node(left, depth + 1), _evaluate_node(right, depth + 1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _apply(_BINARY[type(op)], _evaluate_node(left, depth + 1), _evaluate_node(right, depth + 1))
    raise ValueError(f"{type(node).__name__} is not allowed; use numbers, + - * / // % ** and brackets")


def _apply(function: Callable[[_Number, _Number], _Number], left: _Number, right: _Number) -> _Number:
    try:
        return _bounded(function(left, right))
    except ZeroDivisionError as fault:
        raise ValueError("division by zero") from fault
    except OverflowError as fault:
        raise ValueError("the result is too large") from fault


def _power(base: _Number, exponent: _Number) -> _Number:
    if abs(exponent) > _MAX_EXPONENT:
        raise ValueError(f"exponent {exponent} is outside -{_MAX_EXPONENT} to {_MAX_EXPONENT}")
    if base < 0 and not float(exponent).is_integer():
        raise ValueError(f"{base} to the power of {exponent} is not a real number")
    return _apply(operator.pow, base, exponent)


def _bounded(value: _Number) -> _Number:
    if not math.isfinite(value) or abs(value) > _MAX_MAGNITUDE:
        raise ValueError(f"a number exceeds {_MAX_MAGNITUDE:.0e}")
    return value
