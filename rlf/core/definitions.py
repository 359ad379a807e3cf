"""Callables as their source defines them, read without running any of it.

What the source leaves open (a decorator, a base class, a name made at run time) is unknown here, and never a fault.
"""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib.machinery import PathFinder
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple

from rlf.core.callables import missing_name
from rlf.core.errors import RlfError
from rlf.core.process import search_folders

_TYPES: dict[str, Any] = {
    kind.__name__: kind for kind in (str, int, float, bool, list, dict, tuple, set, bytes, object)
}
_TYPING = ("Any", "Optional", "Union", "Literal")
_MAKES_NAMES = ("globals(", "exec(", "setattr(", "vars(", "__getattr__", "sys.modules", "locals(")
"""Words of modules whose names are not all written in them."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Definition(NamedTuple):
    """A callable's definition as its source has it."""

    stub: Callable[..., Any]
    """A function or class with its signature and docstring; never to be called."""
    complete: bool
    """Whether the source says every type and default, so that importing it adds nothing."""


class _AnyDefault:
    """A default that is an expression: equal to whatever it is compared with, since its value is unknown."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # equal to everything, so that no hash can fit


def find_definition(name: str) -> Definition | None:
    """The definition of `package.module:name` or `path/file.py:name`; None where the source does not settle it.

    Raises:
        RlfError: the file is not there, is not Python, or has no such name.
    """
    place, _, attribute = name.rpartition(":")
    file = Path(place) if place.endswith(".py") else module_file(place)
    if file is None or "." in attribute:
        return None
    source, bindings = read_bindings(file, name)
    own = [statement for bound, statement in bindings if bound == attribute]
    if not own and "*" not in {bound for bound, _ in bindings} and not any(word in source for word in _MAKES_NAMES):
        raise RlfError(missing_name(name, attribute, [bound for bound, _ in bindings]))
    return _read_definition(own[0]) if len(own) == 1 else None


def read_bindings(file: Path, name: str) -> tuple[str, list[tuple[str, ast.AST]]]:
    """The source of a file, and what it binds. Raises RlfError, which names the callable that was looked for."""
    try:
        if not file.is_file():
            raise FileNotFoundError(f"no file {file}")
        source = file.read_text(encoding="utf-8")
        return source, parse_bindings(source, str(file))
    except (OSError, SyntaxError, ValueError, RecursionError) as fault:
        from rlf.core.mistakes import import_fault

        raise RlfError(import_fault(name, fault)) from fault


@lru_cache(maxsize=4)  # a file of hundreds of tools is parsed once for all of them
def parse_bindings(source: str, file: str) -> list[tuple[str, ast.AST]]:
    """Names that a file binds, each with its statement."""
    return list(list_bindings(ast.parse(source, file).body))


def module_file(module: str) -> Path | None:
    """The source of a module, found along the search path without importing the packages around it."""
    path: Iterable[str] | None = search_folders()
    for part in module.split("."):
        # By its last word alone: the path of a folder without `__init__` looks its parent up in sys.modules, where
        # nothing that was not imported stands.
        spec = None if path is None else PathFinder.find_spec(part, list(path))
        if spec is None:
            return None
        path = spec.submodule_search_locations
    origin = None if spec is None else spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def list_bindings(body: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Names that a module's statements bind, those within `if`, `try` and the like included."""
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node
        elif not isinstance(node, ast.Lambda):
            yield from list_bindings(ast.iter_child_nodes(node))


def _read_definition(node: ast.AST) -> Definition | None:
    if isinstance(node, FUNCTIONS):
        return None if node.decorator_list else define_function(node)
    if not isinstance(node, ast.ClassDef) or node.decorator_list or node.bases or node.keywords:
        return None
    called = [statement for bound, statement in list_bindings(node.body) if bound == "__call__"]
    if not called:
        return Definition(type(node.name, (), {"__doc__": ast.get_docstring(node)}), complete=True)
    function = _read_definition(called[0]) if len(called) == 1 and isinstance(called[0], FUNCTIONS) else None
    if function is None:
        return None
    members = {"__call__": function.stub, "__doc__": ast.get_docstring(node)}
    return Definition(type(node.name, (), members), function.complete)


def define_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Definition:
    """The stub of a function."""

    def plain() -> None:
        """Stands for a function that is not imported."""

    async def awaited() -> None:
        """The same of one that is awaited."""

    stub: Any = awaited if isinstance(node, ast.AsyncFunctionDef) else plain
    parameters, complete = list[Parameter](), True
    for argument, default, kind in _list_arguments(node.args):
        annotation = Parameter.empty if argument.annotation is None else _read_type(argument.annotation)
        value = _read_default(argument, default)
        complete &= annotation is not _UNKNOWN and not isinstance(value, _AnyDefault)
        annotation = Parameter.empty if annotation is _UNKNOWN else annotation
        parameters.append(Parameter(argument.arg, kind, default=value, annotation=annotation))
    stub.__signature__ = inspect.Signature(parameters)
    stub.__annotations__ = {p.name: p.annotation for p in parameters if p.annotation is not Parameter.empty}
    stub.__doc__, stub.__name__ = ast.get_docstring(node), node.name
    return Definition(stub, complete)


def _list_arguments(args: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None, Any]]:
    """Each argument with its default and its kind, in the order of a signature."""
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    for number, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        only = number < len(args.posonlyargs)
        yield argument, default, Parameter.POSITIONAL_ONLY if only else Parameter.POSITIONAL_OR_KEYWORD
    if args.vararg is not None:
        yield args.vararg, None, Parameter.VAR_POSITIONAL
    for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield argument, default, Parameter.KEYWORD_ONLY
    if args.kwarg is not None:
        yield args.kwarg, None, Parameter.VAR_KEYWORD


def _read_default(argument: ast.arg, default: ast.expr | None) -> Any:
    """A default; unknown where a call in the type, such as `Annotated[int, Field(default=3)]`, may hold one."""
    if default is not None:
        try:
            return ast.literal_eval(default)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return _AnyDefault()
    nodes = [] if argument.annotation is None else ast.walk(argument.annotation)
    return _AnyDefault() if any(isinstance(node, ast.Call) for node in nodes) else Parameter.empty


_UNKNOWN = object()
"""A type that the source alone does not say."""


def _read_type(node: ast.expr) -> Any:
    """A type written with built-in names alone; `_UNKNOWN` for any other."""
    try:
        return _evaluate_node(node)
    except (LookupError, TypeError, ValueError, SyntaxError, RecursionError):
        return _UNKNOWN


def _evaluate_node(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return _evaluate_node(ast.parse(node.value, mode="eval").body)
        if node.value is not None:
            raise ValueError("a value is no type")
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return typing.Union[_evaluate_node(node.left), _evaluate_node(node.right)]  # noqa: UP007 - arms known at run time
    if isinstance(node, ast.Subscript):
        return _evaluate_subscript(node)
    name = ast.unparse(node).removeprefix("typing.")
    return _TYPES[name] if name in _TYPES else getattr(typing, _check_name(name))


def _evaluate_subscript(node: ast.Subscript) -> Any:
    if ast.unparse(node.value).removeprefix("typing.") == "Literal":
        return typing.Literal[ast.literal_eval(node.slice)]
    arms = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    inner = tuple(... if isinstance(arm, ast.Constant) and arm.value is ... else _evaluate_node(arm) for arm in arms)
    return _evaluate_node(node.value)[inner if len(inner) != 1 else inner[0]]


def _check_name(name: str) -> str:
    if name not in _TYPING:
        raise LookupError(name)
    return name
