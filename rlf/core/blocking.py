"""Calls that block, found in the source of an `async def`: it stops every other trajectory while it waits."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_BLOCKING = {
    "time": ("sleep",),
    "subprocess": ("run", "call", "check_call", "check_output"),
    "os": ("system", "wait", "waitpid"),
    "urllib.request": ("urlopen", "urlretrieve"),
    "requests.api": ("get", "post", "put", "patch", "delete", "head", "options", "request"),
}
"""Functions by the module that defines them."""


def blocking_calls(function: Callable[..., Any]) -> list[str]:
    """Names of the blocking functions that a coroutine function calls itself; none where its source is not known."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.iscoroutinefunction(function):
        function = getattr(function, "__call__", function)  # noqa: B004 - the method itself is read
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return []
    known = getattr(function, "__globals__", {})
    return list(dict.fromkeys(name for name in _name_called(tree.body[0]) if _is_blocking(name, known)))


def _name_called(node: ast.AST) -> Iterator[str]:
    """Dotted names that are called below a node, those within functions of its own left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.Call):
            yield ast.unparse(child.func)
        yield from _name_called(child)


def _is_blocking(name: str, known: dict[str, Any]) -> bool:
    first, *rest = name.split(".")
    found = known.get(first)
    for part in rest:
        found = getattr(found, part, None)
    return any(
        getattr(found, "__name__", None) == blocking and _defining_module(found) == module
        for module, names in _BLOCKING.items()
        for blocking in names
    )


def _defining_module(found: Any) -> str | None:
    """The module that defines a function; `os` for those of its own kind of system."""
    module = getattr(found, "__module__", None)
    return "os" if module in ("posix", "nt") else module
