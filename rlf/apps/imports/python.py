"""The callables of a Python module as tools: functions, cached and decorated ones, partials, bound methods, instances.

What cannot be a tool is left out with its reason; it ends the import of no other.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import os
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rlf.apps.imports.found import Json, ToolImport
from rlf.core.callables import load_module
from rlf.core.definitions import FUNCTIONS, list_bindings
from rlf.core.errors import RlfError, describe_type
from rlf.tools.kinds.python import PythonTool


class _NoTool(Exception):
    """Why a name of a module is no tool."""


def read_module(source: str, folder: Path) -> ToolImport:
    """The public callables that a module or a file defines, with what their signatures and docstrings say.

    Args:
        source: `package.module` or `path/file.py`.
        folder: where the tool files go: paths in them start from there.
    """
    is_file = source.endswith(".py")
    place = str(Path(source).absolute()) if is_file else source
    names = _public_names(source)
    module = load_module(place)
    where = Path(os.path.relpath(place, folder.absolute())).as_posix() if is_file else place
    found = ToolImport()
    for name, is_definition in names.items():
        value = getattr(module, name, None)
        if value is None or not (is_definition or _is_made_here(value, module.__name__)) or _is_data(value):
            continue
        try:
            found.tools.append(_declare_tool(name, value, place, where))
        except _NoTool as reason:
            found.left_out.append(f"{name}: {reason}")
    if not found.tools and not found.left_out:
        raise RlfError(f"{source}: defines no public function.")
    return found


def _public_names(source: str) -> dict[str, bool]:
    """The names that a source binds itself, and whether by a definition; read from its text, nothing is run for it."""
    path = Path(source)
    if not source.endswith(".py"):
        try:
            spec = importlib.util.find_spec(source)
        except (ImportError, ValueError) as error:
            raise RlfError(f"{source}: cannot be imported: {error}.") from error
        if spec is None or spec.origin is None:
            raise RlfError(f"{source}: there is no module of that name. Write a module or a file that ends in .py.")
        path = Path(spec.origin)
    if not path.is_file():
        raise RlfError(f"{source}: no such file. Check the path.")
    try:
        names = _defined_names(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise RlfError(f"{path}: not Python: {error}. Fix the file.") from error
    return {name: is_definition for name, is_definition in names.items() if not name.startswith("_")}


def _is_made_here(value: Any, module: str) -> bool:
    """Whether what a name is bound to is the module's own: no alias of another's function, no object of a library."""
    if isinstance(value, partial):
        return True
    has_own_name = inspect.isroutine(value) or isinstance(value, type) or hasattr(value, "__wrapped__")
    owner = value if has_own_name else type(value)
    return callable(value) and getattr(owner, "__module__", None) == module


def _is_data(value: Any) -> bool:
    """Whether a class is there to describe arguments and results, or to be raised, which makes it no tool."""
    if not isinstance(value, type) or "__call__" in dir(value):
        return False
    return issubclass(value, BaseModel | Enum | BaseException | tuple | dict) or dataclasses.is_dataclass(value)


def _declare_tool(name: str, value: Any, place: str, where: str) -> Json:
    """The declaration of one callable. Raises _NoTool."""
    if isinstance(value, type):
        raise _NoTool(_why_no_class(value, place))
    if not callable(value):
        raise _NoTool(f"is {describe_type(value)}, which cannot be called")
    try:
        found = PythonTool(callable=f"{place}:{name}").described()
    except RlfError as fault:
        raise _NoTool(str(fault).removeprefix(f"{place}:{name}: ")) from fault
    if not found.description:
        raise _NoTool("has no docstring, which the model would read")
    about = {"name": name, "description": found.description, "inputSchema": dict(found.input_schema)}
    return {**about, "target": {"kind": "python", "callable": f"{where}:{name}"}}


def _why_no_class(found: type, place: str) -> str:
    """A class may be made with arguments or hold anything: whether it is a tool is for a person to say."""
    if "__call__" not in dir(found):
        return "is a class whose instances cannot be called; only functions are imported"
    name = f"{Path(place).name if place.endswith('.py') else place}:{found.__name__}"
    return f"is a class; write a tool file with `target: {{kind: python, callable: {name}}}` for one that keeps state"


def _defined_names(source: str | bytes) -> dict[str, bool]:
    """The names that a module's text binds but by imports, each with whether a `def` or `class` binds it.

    Raises SyntaxError or ValueError for text that is not Python.
    """
    return {
        name: isinstance(node, (*FUNCTIONS, ast.ClassDef))
        for name, node in list_bindings(ast.parse(source).body)
        if not isinstance(node, ast.Import | ast.ImportFrom)
    }
