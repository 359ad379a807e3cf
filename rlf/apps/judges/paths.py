"""The paths of values that a judge's template looks up, and those that a shape lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from jinja2 import nodes

Path: TypeAlias = tuple[str, ...]
"""`a.b["c"]` is (a, b, c); what stands for each element of a list is `ELEMENT`."""
ELEMENT = "*"
Shape: TypeAlias = "Mapping[str, Shape] | Sequence[Shape] | None"
"""The parts of a value: attributes by name, or one shape of all elements; None: anything."""
_ASK_WHETHER = frozenset({"defined", "undefined", "default", "d"})
"""Tests and filters that take what is not there."""


def paths_of(source: str) -> set[Path]:
    """The paths that a template needs to be filled in; not those that it asks about by `is defined` or `default`.

    The source must be one that `Template` takes.
    """
    from jinja2 import Environment

    walk = _Walk()
    walk.visit(Environment().parse(source), {})
    return walk.found - walk.optional


def unknown_part(path: Path, shape: Shape) -> tuple[Path, list[str]] | None:
    """The path up to what a shape lacks, and what it has there; None where nothing is missing."""
    for place, name in enumerate(path):
        if shape is None:
            return None
        if isinstance(shape, Mapping):
            if name == ELEMENT:
                return None
            if name not in shape:
                return path[: place + 1], list(shape)
            shape = shape[name]
        elif name == ELEMENT:
            shape = shape[0]
        else:
            return path[: place + 1], []
    return None


class _Walk:
    """A template's nodes with what names stand for at each: a path, or None for what is unknown."""

    def __init__(self) -> None:
        self.found: set[Path] = set()
        self.optional: set[Path] = set()

    def visit(self, node: nodes.Node, scope: dict[str, Path | None]) -> None:
        from jinja2 import nodes

        path = _path_of_node(node, scope)
        if path is not None:
            self.found.add(path)
        elif isinstance(node, nodes.For):
            self._visit_loop(node, scope)
        elif isinstance(node, nodes.Macro | nodes.CallBlock):
            self._visit_all(node, scope | {name.name: None for name in node.args})
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
            self.visit(node.node, scope)
            scope[node.target.name] = _path_of_node(node.node, scope)
        elif isinstance(node, nodes.Test | nodes.Filter) and node.name in _ASK_WHETHER:
            asked = _path_of_node(node.node, scope)
            self.optional |= set() if asked is None else {asked}
            for child in node.args:
                self.visit(child, scope)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            self.visit(node.node.node, scope)  # a method of a value, not one of its attributes
            for argument in (*node.args, *node.kwargs):
                self.visit(argument, scope)
        elif not isinstance(node, nodes.Name):
            self._visit_all(node, scope)

    def _visit_all(self, node: nodes.Node, scope: dict[str, Path | None]) -> None:
        for child in node.iter_child_nodes():
            self.visit(child, scope)

    def _visit_loop(self, node: nodes.For, scope: Mapping[str, Path | None]) -> None:
        from jinja2 import nodes

        self.visit(node.iter, dict(scope))
        over = _path_of_node(node.iter, scope)
        inner = {**scope, "loop": None, **{name.name: None for name in node.target.find_all(nodes.Name)}}
        if isinstance(node.target, nodes.Name):
            inner[node.target.name] = None if over is None else (*over, ELEMENT)
        for child in (*node.body, *node.else_, *([node.test] if node.test else [])):
            self.visit(child, inner)


def _path_of_node(node: nodes.Node | None, scope: Mapping[str, Path | None]) -> Path | None:
    """The path that an expression stands for; None where it is no chain of attributes."""
    from jinja2 import nodes

    if isinstance(node, nodes.Name):
        return scope.get(node.name, (node.name,)) if node.ctx == "load" else None
    if isinstance(node, nodes.Getattr):
        name: object = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        name = node.arg.value
    else:
        return None
    base = _path_of_node(node.node, scope)
    return None if base is None else (*base, name if isinstance(name, str) else ELEMENT)
