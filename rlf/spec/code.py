"""The user's code behind a spec: files of its callables and what they import within the project, without running it.

Imports are read from the syntax tree, so that one made by a computed name is not seen. What is installed counts by its
packages' versions, apart from the module that a callable is in; rlf's own code by rlf's version.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlf.core import Fault
from rlf.core.redact import SECRET_FIELDS, secret_parameters
from rlf.spec.layers import ITEM_LISTS
from rlf.spec.nodes import Node

_INSTALLED = ("site-packages", "dist-packages")
_MAX_FILES = 500
_NOT_RECORDED = sys.stdlib_module_names | {"rlf"}


def project_code(declarations: Any) -> list[Path]:
    """Every file of the project that the callables of declarations lead to, sorted."""
    return sorted(_walk_code(declarations)[0])


def imported_modules(declarations: Any) -> set[str]:
    """Top names of the modules that declarations name, and that the project's files behind them import."""
    return _walk_code(declarations)[1]


def _walk_code(declarations: Any) -> tuple[set[Path], set[str]]:
    """The project's files, and the top names of what they import."""
    callables, modules = _read_names(declarations)
    files, wanted = set[Path](), [file for name in callables for file in _files_of(name)]
    while wanted and len(files) < _MAX_FILES:
        file = wanted.pop()
        if file in files:
            continue
        files.add(file)
        roots = [Path(root) for root in sys.path if root and not is_installed(Path(root))]
        for top, found in _list_imports(file, roots):
            modules.add(top)
            wanted += () if is_installed(file) else [one for one in found if not is_installed(one)]
    return files, modules - _NOT_RECORDED - {""}


def _read_names(declarations: Any) -> tuple[list[str], set[str]]:
    """Callables of declarations: texts under `callable`, or that read like `/path/file.py:name`.

    And the modules that they name: of callables and games, a world's package, a sandbox's, a server's `-m`.
    """
    callables, modules, waiting = list[str](), list[str](), [("", declarations)]
    while waiting:
        entry = key, value = waiting.pop()
        match entry:
            case _, str() if value.rpartition(":")[0].endswith(".py"):
                callables.append(value)
            case (("callable" | "make"), str()):
                callables += [value] if key == "callable" else []
                modules.append(value.rpartition(":")[0])
            case "package", str():
                modules.append(value)
            case "packages", list():
                modules += filter(str.isidentifier, map(str, value))
            case "args", list() if "-m" in value[:-1]:
                modules.append(str(value[value.index("-m") + 1]))
        if isinstance(value, dict | list):
            waiting += value.items() if isinstance(value, dict) else [("", child) for child in value]
    return callables, {name.partition(".")[0] for name in modules}


def _files_of(name: str) -> list[Path]:
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        return [Path(place)]
    return _module_files(place, [Path(root) for root in sys.path if root])


def _module_files(name: str, roots: Sequence[Path]) -> list[Path]:
    """The file of a module and those of the packages around it; none for what is not found, built in or rlf's own."""
    parts = name.split(".")
    if parts[0] in _NOT_RECORDED:
        return []
    for root in (*roots, *_editable_roots(parts[0])):
        files = [root.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
        module = root.joinpath(*parts).with_suffix(".py")
        if files[-1].is_file() or module.is_file():
            return [file for file in [*files, module] if file.is_file()]
    return []


def _editable_roots(top: str) -> Iterator[Path]:
    """The folder of a module that is on no path: one that is installed from a checkout, which a finder of its own
    finds."""
    try:
        spec = find_spec(top)  # of a top name, so that nothing is imported
    except (ImportError, ValueError, AttributeError):  # a finder may be anybody's, and a module without a spec loaded
        return
    for place in () if spec is None else (spec.submodule_search_locations or [spec.origin or ""]):
        yield Path(place).parent


def _list_imports(file: Path, roots: Sequence[Path]) -> Iterator[tuple[str, list[Path]]]:
    """Each import of a file: the module's top name, empty where it is relative, and the files that it leads to."""
    try:
        statements = _find_imports(file.read_bytes()) if file.is_file() else []
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for statement in statements:
        match statement:
            case ast.Import():
                for alias in statement.names:
                    yield alias.name.partition(".")[0], _module_files(alias.name, roots)
            case ast.ImportFrom(level=0, module=str() as module):
                names = (module, *(f"{module}.{alias.name}" for alias in statement.names))
                yield module.partition(".")[0], [found for name in names for found in _module_files(name, roots)]
            case ast.ImportFrom(level=level) if level:
                folder = file.parents[level - 1] if level <= len(file.parents) else file.parent
                yield "", list(_files_of_relative(folder, statement))


@lru_cache(maxsize=256)  # parsing is most of a check's work on code, and the code is seldom another
def _find_imports(source: bytes) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def _files_of_relative(folder: Path, node: ast.ImportFrom) -> Iterator[Path]:
    parts = node.module.split(".") if node.module else []
    for names in (parts, *([*parts, alias.name] for alias in node.names)):
        place = folder.joinpath(*names)
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if names and file.is_file():
                yield file


def is_installed(path: Path) -> bool:
    """Whether a file is of a package or of Python, and counts by its version."""
    return any(part in _INSTALLED for part in path.parts) or path.is_relative_to(Path(ast.__file__).parent)


# Secrets that a declaration writes out in an address, a query or a body, where recordings, databases and exports keep
# them.

_NOT_SENT = frozenset({"inputSchema", "outputSchema", "tests", "response_schema", "schema"})
"""Keys whose values are the user's own JSON."""


def literal_keys(root: Node) -> Iterator[Fault]:
    """A fault for each secret parameter of a spec's tools and rewards that is written out."""
    for key in ITEM_LISTS:
        if (items := root.get(key)) is not None:
            yield from literal_keys_of(items)


def literal_keys_of(item: Node) -> Iterator[Fault]:
    """The same of one tool, server or reward."""
    for key, child in item.mapping.items():
        if key in _NOT_SENT:
            continue
        if key == "url":
            yield from _in_address(child)
        elif key in SECRET_FIELDS:
            yield from _in_fields(child, SECRET_FIELDS[key])
        if key in ("url", "headers", "env", "prompt"):
            from rlf.spec.mistaken import filled_in_by_others

            yield from filled_in_by_others(key, child)
        yield from literal_keys_of(child)
    for child in item.items:
        yield from literal_keys_of(child)


def _in_address(node: Node) -> Iterator[Fault]:
    text = node.written or node.value
    for name, value in secret_parameters(text) if isinstance(text, str) else ():
        if _is_literal(value):
            yield node.fault(_literal_message(name, f"?{name}=${{oc.env:NAME}}"))


def _in_fields(node: Node, is_secret: Callable[[str], bool]) -> Iterator[Fault]:
    """Those of a query, or of a body at any depth."""
    for name, child in node.mapping.items():
        text = child.written or child.value
        if is_secret(name) and isinstance(text, str) and _is_literal(text):
            yield child.fault(_literal_message(name, f'{name}: "${{oc.env:NAME}}"'))
        yield from _in_fields(child, is_secret)
    for child in node.items:
        yield from _in_fields(child, is_secret)


def _is_literal(text: str) -> bool:
    return text.strip() != "" and "${" not in text and "{{" not in text


def _literal_message(name: str, example: str) -> str:
    return (
        f"got a value of {name!r}, which is a secret by its name; secrets come from the environment, "
        f"so that nothing stores them. Write `{example}` and set the variable NAME."
    )
