"""A spec as a mapping, and functions of a notebook in it: what a command would read from files."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import json
import symtable
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any

from rlf.core.errors import RlfError
from rlf.core.files import write_whole
from rlf.core.identity import hash_json
from rlf.core.redact import is_secret_name

FOLDER = "functions"
"""Below the runs folder; a file's name has the hash of its text, so that a run's code is never overwritten."""


def to_overrides(values: Mapping[str, Any], runs_folder: Path) -> list[str]:
    """A mapping from keys to values as overrides of a command line; functions are written to files first.

    A function among `tools` or `rewards` stands for an entry of kind python that has its name.

    Raises:
        RlfError: a function cannot be written to a file, or a value has no JSON.
    """
    texts = []
    for key, value in values.items():
        try:
            texts.append(f"{key}={json.dumps(_replaced(value, (key,), runs_folder), allow_nan=False)}")
        except (TypeError, ValueError) as error:
            raise RlfError(f"{key}: {error}. A spec has text, numbers, lists, mappings, paths and functions.") from None
    return texts


def _replaced(value: Any, path: tuple[str, ...], runs_folder: Path) -> Any:
    """The value as JSON has it, with the name of its file in place of each function."""
    if isinstance(value, Mapping):
        return {str(key): _replaced(child, (*path, str(key)), runs_folder) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(child, (*path, ""), runs_folder) for child in value]
    if isinstance(value, PathLike):
        return fspath(value)
    if not callable(value):
        return value
    named = name_function(value, runs_folder)
    target = {"kind": "python", "callable": named}
    match path:
        case ("tools", ""):
            return {"name": value.__name__, "target": target}
        case ("rewards", ""):
            return {"name": value.__name__} | target
    return named


def name_function(function: Callable[..., Any], runs_folder: Path) -> str:
    """The name by which a spec finds a function: of its module, or of a file that is written with its source.

    Of a notebook or a script there is no module that could be imported again: the function's source is written, with
    the functions, imports and plain values that it uses.

    Raises:
        RlfError: it has no source, or uses what cannot be written; it says which name.
    """
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function):
        raise RlfError(f"{name}: expected a function. Write `def NAME`.")
    if _is_importable(function):
        return f"{function.__module__}:{name}"
    parts: dict[str, str] = {}
    _add_part(name, function, name, parts)
    file = _keep_text("\n\n".join(parts.values()) + "\n", f"{name}_", ".py", runs_folder)
    return f"{file}:{name}"


def write_base(files: Sequence[Path], runs_folder: Path) -> Path:
    """A spec that extends files and says nothing else: a mapping as overrides of it is a spec by itself."""
    text = json.dumps({"extends": [str(file.absolute()) for file in files]} if files else {})
    return _keep_text(text + "\n", "base_", ".yaml", runs_folder)


def _keep_text(text: str, before: str, suffix: str, runs_folder: Path) -> Path:
    file = runs_folder / FOLDER / f"{before}{hash_json(text)[:12]}{suffix}"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text)
    return file


def _is_importable(value: Any) -> bool:
    """Whether another process finds the value by its module and name."""
    if value.__module__ == "__main__":
        return False
    try:
        return getattr(importlib.import_module(value.__module__), value.__qualname__, None) is value
    except ImportError:
        return False


def _add_part(name: str, value: Any, used_by: str, parts: dict[str, str]) -> None:
    """Adds the text that defines a name, after what that text uses itself."""
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif not (inspect.isfunction(value) or inspect.isclass(value)):
        parts[name] = f"{name} = {_literal(name, value, used_by)}"
    elif _is_importable(value):
        parts[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    else:
        source = _source_of(value, name)
        parts[name] = ""  # a function may call itself, or another one that calls it
        for used, found in _used_names(source, value):
            if used not in parts:
                _add_part(used, found, name, parts)
        del parts[name]
        parts[name] = source if value.__name__ == name else f"{source}\n\n{name} = {value.__name__}"


def _source_of(value: Any, name: str) -> str:
    if not value.__qualname__.isidentifier():
        raise RlfError(f"{name}: it is made inside of another function, or has no name. Write `def NAME` at the top.")
    try:
        source = textwrap.dedent(inspect.getsource(value)).rstrip()
        ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        raise RlfError(f"{name}: its source was not found. Write it to a file, and name it `FILE.py:{name}`.") from None
    return source


def _used_names(source: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Names that the source takes from around it, with their values; builtins are everywhere."""
    around = value.__globals__ if inspect.isfunction(value) else vars(importlib.import_module(value.__module__))
    for name in dict.fromkeys(_outer_names(symtable.symtable(source, "<function>", "exec"))):
        if name in around and getattr(builtins, name, None) is not around[name]:
            yield name, around[name]


def _outer_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that a block and those inside it read and do not define. At the top: decorators, defaults, annotations."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _outer_names(inner)


def _literal(name: str, value: Any, used_by: str) -> str:
    """The value as Python text. Raises RlfError where no text stands for it, or where it may be a secret."""
    if isinstance(value, str) and is_secret_name(name):
        raise RlfError(
            f"{used_by}: it uses `{name}`, which may be a secret and would stand in a file. "
            f'Read it in the function: `os.environ["{name}"]`.'
        )
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError):
        pass
    kind = type(value).__name__
    raise RlfError(
        f"{used_by}: it uses `{name}`, a {kind} that cannot be written into a file. Make it inside the function, or "
        f"write both into a file and name it `FILE.py:{used_by}`."
    )
