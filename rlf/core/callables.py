"""Callables named in a spec: `pkg.module:name` or `path/file.py:name`.

Naming is pure (`CallableName` resolves a file against the spec's folder); `load_callable` alone imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from rlf.core.errors import RlfError
from rlf.core.hashing import hash_bytes, hash_path
from rlf.core.registry import nearest

_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_NAME = re.compile(rf"(?:{_DOTTED}|.+\.py):{_DOTTED}")


def resolve_callable(name: str, folder: Path | None) -> str:
    """The name with its file made absolute against `folder`; a module's name as it is. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"got {name!r}; expected `package.module:name` or `path/file.py:name`")
    place, _, attribute = name.rpartition(":")
    if folder is None or not place.endswith(".py"):
        return name
    return f"{os.path.normpath(folder / place)}:{attribute}"


def _resolved(name: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    try:
        return resolve_callable(name, folder)
    except ValueError as fault:
        raise PydanticCustomError("callable_name", "{reason}", {"reason": str(fault)}) from fault


CallableName = Annotated[str, AfterValidator(_resolved)]
"""A field that names a callable; validated with `context={"folder": Path}`, files resolve against that folder."""


def load_callable(name: str) -> Callable[..., Any]:
    """Imports what `name` stands for. Raises RlfError that names it and says what to mend."""
    place, _, attribute = name.rpartition(":")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (Exception, SystemExit) as fault:
        raise RlfError(f"cannot import {name!r}: {type(fault).__name__}: {fault}. {_mend(place)}") from fault
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = nearest(part, [known for known in dir(found) if not known.startswith("_")])
            raise RlfError(f"{name!r}: {place} has no {part!r}{close}. Define it, or correct the name after `:`.")
        found = getattr(found, part)
    if not callable(found):
        raise RlfError(f"{name!r} is a {type(found).__name__}, no callable. Name a function.")
    return found  # type: ignore[no-any-return]  # callable() does not narrow Any


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"rlf_file_{hash_bytes(str(path).encode())[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"no loader for {path}"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _mend(place: str) -> str:
    if place.endswith(".py"):
        return "Relative files resolve against the file that names them; run it alone with `python` to see its errors."
    return "Install the package that holds it, or name a file: `./file.py:name`."


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: `async def`, a partial of one, or an object with `async __call__`."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - the method itself is asked


def source_hash(function: Callable[..., Any]) -> str:
    """sha256 of the file that defines `function`; of its qualified name where no Python file does."""
    while isinstance(function, partial):
        function = function.func
    target = inspect.unwrap(function)
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target)
    try:
        return hash_path(Path(inspect.getfile(target)))
    except (TypeError, OSError):
        return hash_bytes(f"{target.__module__}:{target.__qualname__}".encode())
