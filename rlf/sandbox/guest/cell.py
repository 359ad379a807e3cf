"""Runs Python as a notebook cell: names stay, the last expression has a value, errors show the model's own lines."""

from __future__ import annotations

import ast
import io
import linecache
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_ERROR_CHARS = 8_000
_FIRST_NAME = "<code>"


class CellEnd(NamedTuple):
    """How a cell ended."""

    outcome: str
    """`ok`, `error` or `memory`."""
    value: str | None = None
    """`repr` of the last expression; None when the cell ends in a statement or the value is None."""
    error: str | None = None
    images: tuple[bytes, ...] = ()
    """Figures that are open at the end, as PNG."""


class Interpreter:
    """One module, kept from cell to cell."""

    def __init__(self, max_value_chars: int, module: str = "__main__") -> None:
        self._max_value_chars = max_value_chars
        self._module = types.ModuleType(module)
        self._names: list[str] = []
        self.scope: dict[str, Any] = vars(self._module)
        sys.modules[module] = self._module

    def run(self, source: str) -> CellEnd:
        """Runs one cell; whatever it raises is reported, never raised."""
        name = _FIRST_NAME if not self._names else f"<code {len(self._names) + 1}>"
        self._names.append(name)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            value = self._execute_source(source, name)
            return CellEnd(
                "ok", None if value is None else _cut_text(repr(value), self._max_value_chars), None, _take_figures()
            )
        except SystemExit as leave:
            return (
                CellEnd("ok")
                if leave.code is None or leave.code == 0
                else CellEnd("error", None, self._format_error(leave))
            )
        except MemoryError as fault:
            return CellEnd("memory", None, self._format_error(fault))
        except BaseException as fault:  # noqa: BLE001 - foreign code may raise anything
            return CellEnd("error", None, self._format_error(fault))

    def _execute_source(self, source: str, name: str) -> Any:
        tree = ast.parse(source, name)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            exec(compile(tree, name, "exec"), self.scope)
            return None
        del tree.body[-1]
        exec(compile(tree, name, "exec"), self.scope)
        return eval(compile(ast.Expression(last.value), name, "eval"), self.scope)

    def _format_error(self, fault: BaseException) -> str:
        try:
            formatted = traceback.TracebackException.from_exception(fault)
            for part in _walk_causes(formatted, set()):
                part.stack = traceback.StackSummary.from_list([f for f in part.stack if f.filename in self._names])
            return _cut_text("".join(formatted.format()).strip(), MAX_ERROR_CHARS, keep_end=True)
        except BaseException as worse:  # noqa: BLE001 - the exception's own methods are foreign code
            return f"{type(fault).__name__}: its text cannot be shown ({type(worse).__name__})"


def _walk_causes(formatted: traceback.TracebackException, seen: set[int]) -> Iterator[traceback.TracebackException]:
    if id(formatted) in seen:
        return
    seen.add(id(formatted))
    yield formatted
    for other in (formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())):
        if other is not None:
            yield from _walk_causes(other, seen)


def _cut_text(text: str, max_chars: int, *, keep_end: bool = False) -> str:
    if len(text) <= max_chars:
        return text
    return "…" + text[1 - max_chars :] if keep_end else text[: max_chars - 1] + "…"


def _take_figures() -> tuple[bytes, ...]:
    """Open figures of matplotlib, which are closed; none where the cell did not plot."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return ()
    images = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png")
        images.append(file.getvalue())
    pyplot.close("all")
    return tuple(images)
