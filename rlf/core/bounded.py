"""Jinja2's sandbox in which no template takes all time or memory. Loads jinja2: import it where one is compiled.

A template of a stranger's model, or a slip in one's own, may loop in loops or ask for a text of a billion characters;
it would hold up a check, or every trajectory of a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 1_000_000
"""Most that one operation makes beyond what it is given; what a whole template may write, its caller says."""
_MAX_MADE = 64 * MAX_CHARACTERS
"""Most that it makes of texts that it has already."""
_MAX_TURNS, _CALL_TURNS = 1_000_000, 10
"""Turns of loops in one rendering, and how many of them a call of a macro takes the time of."""
_MAX_BITS = 100_000
_LONG = re.compile(r"\d{7}")
"""A width in a format, or the digits of one."""
_SIZED_FILTERS = ("batch", "center", "format", "indent", "replace", "round", "slice", "tojson")
_SIZED_METHODS = ("center", "expandtabs", "format", "format_map", "ljust", "replace", "rjust", "zfill")

N = TypeVar("N", nodes.For, nodes.Macro)


class _CountingContext(Context):
    """What one rendering sees, how many turns its loops have taken, and how much it has repeated."""

    num_turns = 0
    num_repeated = 0


class _CountingGenerator(CodeGenerator):
    """Writes code whose loops and macros count their turns."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """Writes a loop."""
        super().visit_For(_counting(node, 1), frame)

    def visit_Macro(self, node: nodes.Macro, frame: Frame) -> None:
        """Writes a macro, which may call itself."""
        super().visit_Macro(_counting(node, _CALL_TURNS), frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        """Writes a call; a count is no call of the template's, which would be looked at as one."""
        if isinstance(node.node, nodes.EnvironmentAttribute):
            self.write(f"environment.{node.node.name}(context, {node.args[0].as_const()})")
        else:
            super().visit_Call(node, frame, forward_caller=forward_caller)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Writes `a ~ b`."""
        self.write("environment.concat([")
        for each in node.nodes:
            self.write("str(")
            self.visit(each, frame)
            self.write("), ")
        self.write("])")


def _counting(node: N, num_turns: int) -> N:
    count = nodes.Call(nodes.EnvironmentAttribute("count_turns"), [nodes.Const(num_turns)], [], None, None)
    step = nodes.ExprStmt(count).set_lineno(node.lineno)
    assert node.environment is not None, "a parsed node has one"
    node.body.insert(0, step.set_environment(node.environment))
    return node


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with bounds."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})
    context_class = _CountingContext
    code_generator_class = _CountingGenerator

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters.update({name: _bounded_filter(name, self.filters[name]) for name in _SIZED_FILTERS})
        self.concat = _join_bounded  # type: ignore[method-assign]  # of what `set` and macros write

    def count_turns(self, context: _CountingContext, num_turns: int) -> None:
        """Counts a turn of a loop, or a call. Raises TemplateError beyond the bound."""
        context.num_turns += num_turns
        if context.num_turns > _MAX_TURNS:
            raise TemplateError(f"its loops take more than {_MAX_TURNS:,} turns")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # jinja2's
        """Calls what a template calls."""
        method = getattr(__obj, "__wrapped__", __obj)
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str) and name in _SIZED_METHODS:
            _check_sizes(name, text, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The value of `left operator right`."""
        size = 0
        if operator == "+":
            size = sum(len(each) for each in (left, right) if isinstance(each, str | list | tuple))
        elif operator == "%":
            if isinstance(left, str):
                _check_sizes("format", left, right if isinstance(right, tuple) else (right,))
        else:
            number, other = (left, right) if isinstance(left, int) else (right, left)
            size = len(other) * number if isinstance(number, int) and hasattr(other, "__len__") else 0
            if operator == "**" and isinstance(left, int) and isinstance(right, int):
                size = MAX_CHARACTERS * (left.bit_length() * right > _MAX_BITS) * 2
            context.num_repeated += size  # type: ignore[attr-defined]  # of this class's own contexts
        most = MAX_CHARACTERS if operator != "+" else _MAX_MADE
        if size > most or context.num_repeated > _MAX_MADE:  # type: ignore[attr-defined]
            raise TemplateError(f"{operator} makes more than {most:,} characters")
        return super().call_binop(context, operator, left, right)


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    num_before = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)  # with the attribute by which jinja2 passes more than a value
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_sizes(name, args[num_before], (*args[num_before + 1 :], *kwargs.values()))
        return function(*args, **kwargs)

    return bounded


def _check_sizes(name: str, value: Any, arguments: Sequence[Any]) -> None:
    """Raises TemplateError for arguments of a method or filter by which its result grows without bounds."""
    sizes: Iterator[int]
    if name.startswith("format"):
        widths = [abs(each) for each in arguments if isinstance(each, int)] if "*" in str(value) else []
        sizes = iter([*widths, MAX_CHARACTERS + 1 if _LONG.search(str(value)) else 0])
    elif name == "replace":
        old, new = (len(str(each)) for each in arguments[:2]) if len(arguments) > 1 else (1, 0)
        sizes = iter([len(str(value)) // max(old, 1) * new // 64])
    elif name == "expandtabs":
        sizes = iter([str(value).count("\t") * each for each in arguments if isinstance(each, int)])
    else:
        sizes = (abs(each) for each in arguments if isinstance(each, int))
    if any(size > MAX_CHARACTERS for size in sizes):
        raise TemplateError(f"{name} makes more than {MAX_CHARACTERS:,} characters")


def _join_bounded(pieces: Any) -> str:
    """The pieces as one text. Raises TemplateError for one of too many characters."""
    written = list(pieces)
    if sum(map(len, written)) > _MAX_MADE:
        raise TemplateError(f"it writes more than {_MAX_MADE:,} characters")
    return "".join(written)
