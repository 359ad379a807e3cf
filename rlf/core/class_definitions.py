"""Classes as their source defines them, read without running any of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlf.core.callables import missing_name
from rlf.core.definitions import FUNCTIONS, define_function, list_bindings, module_file, parse_bindings
from rlf.core.errors import RlfError


def read_class(name: str) -> type[Any]:
    """The class `path/file.py:name` with stubs of its methods, those of bases in the same file included.

    Raises:
        RlfError: the file is not there, is not Python, has no such class, or does not settle what its methods take.
    """
    place, _, attribute = name.rpartition(":")
    try:
        source = Path(place).read_text(encoding="utf-8")
        classes = {bound: one for bound, one in parse_bindings(source, place) if isinstance(one, ast.ClassDef)}
    except (OSError, SyntaxError, ValueError, RecursionError) as fault:
        from rlf.core.mistakes import import_fault

        raise RlfError(import_fault(name, fault)) from fault
    if attribute not in classes:
        raise RlfError(missing_name(name, attribute, list(classes)))
    return _class_stub(classes[attribute], classes, name)


def returned_keys(name: str, method: str) -> frozenset[str] | None:
    """The keys of the mappings that a class's method returns, `score` for a number, none where there is no such method.

    None where the source does not settle them.
    """
    place, _, attribute = name.rpartition(":")
    file = Path(place) if place.endswith(".py") else module_file(place)
    try:
        source = "" if file is None else file.read_text(encoding="utf-8")
        classes = {bound: one for bound, one in parse_bindings(source, str(file)) if isinstance(one, ast.ClassDef)}
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    wanted = [attribute]
    for each in wanted:
        if each not in classes:
            return None  # of another file, or made at run time
        found = [statement for bound, statement in list_bindings(classes[each].body) if bound == method]
        if found:
            is_one = len(found) == 1 and isinstance(found[0], FUNCTIONS) and not found[0].decorator_list
            return _keys_of(found[0]) if is_one else None
        wanted += [base for base in map(ast.unparse, classes[each].bases) if base not in ("object", *wanted)]
    return frozenset()


def _keys_of(function: ast.AST) -> frozenset[str] | None:
    found, left = set[str](), list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, ast.Return):
            match node.value:
                case ast.Dict(keys=keys) if all(isinstance(key, ast.Constant) for key in keys):
                    found |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
                case (
                    ast.Constant(value=int() | float())
                    | ast.Compare()
                    | ast.Call(func=ast.Name("float" | "int" | "bool"))
                ):
                    found.add("score")
                case _:
                    return None
        elif not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            left += ast.iter_child_nodes(node)
    return frozenset(found) if found else None


def _class_stub(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], name: str) -> type[Any]:
    bases = []
    for base in node.bases:
        found = classes.get(ast.unparse(base))
        if found is None or found is node:
            raise RlfError(f"{name}: its base {ast.unparse(base)!r} is not in the same file. Define it there.")
        bases.append(_class_stub(found, classes, name))
    members: dict[str, Any] = {"__doc__": ast.get_docstring(node)}
    for method in (one for one in node.body if isinstance(one, FUNCTIONS)):
        definition = define_function(method)
        if not definition.complete and not method.name.startswith("_"):
            words = f"{name}.{method.name}: a type or default is not built in, and its file is not imported"
            raise RlfError(f"{words}. Write types such as `int`, `list[str]` or `Literal[...]`.")
        members[method.name] = definition.stub
    return type(node.name, tuple(bases), members)
