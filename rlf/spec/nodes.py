"""Values with their places: what the reader yields, the layers merge, and every fault points into.

A `Node` tree is a YAML document, or several merged ones, in which each value still knows its file, line and column.
Invariant: nothing here changes a value; merging only chooses among values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlf.core import Fault, Place

Key = str | int
KeyPath = tuple[Key, ...]
Scalar = str | int | float | bool | None

OVERRIDE = "override"
"""The file name of values that were given on the command line."""


class Unreadable:
    """The value of a list item whose file could not be read: reported once, left out of what follows."""


UNREADABLE = Unreadable()


@dataclass(frozen=True, slots=True)
class Node:
    """One YAML value."""

    value: dict[str, Node] | list[Node] | Scalar | Unreadable
    place: Place
    """Where the value starts."""
    key_place: Place
    """Where its key starts; of a list item or a document its own start, of a file in a list the item that names it."""
    path: KeyPath
    """Keys from the root of its own document."""
    folder: Path
    """Where relative paths in the value start from."""
    written: str | None = None
    """The text with `${...}` that the value was interpolated from; None where it stands as written."""

    @property
    def mapping(self) -> dict[str, Node]:
        """The entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The items of a list; empty for anything else."""
        return self.value if isinstance(self.value, list) else []

    @property
    def origin(self) -> str:
        """`file:line:column`, or `override`."""
        return str(self.place)

    def get(self, key: Key) -> Node | None:
        """The child under a key or an index, or None."""
        if isinstance(key, str):
            return self.mapping.get(key)
        return self.items[key] if -len(self.items) <= key < len(self.items) else None

    def with_child(self, key: Key, child: Node) -> Node:
        """The same with another child under a key, or at an index."""
        if isinstance(key, int):
            return replace(self, value=[*self.items[:key], child, *self.items[key + 1 :]])
        return replace(self, value={**self.mapping, key: child})

    def without_child(self, key: Key) -> Node:
        """The same without the child under a key, or at an index."""
        if isinstance(key, int):
            return replace(self, value=[*self.items[:key], *self.items[key + 1 :]])
        return replace(self, value={name: child for name, child in self.mapping.items() if name != key})

    def fault(self, message: str, *, at_key: bool = False) -> Fault:
        """A fault of this value, or of its key."""
        return Fault(self.key_place if at_key else self.place, dotted(self.path), message)


def dotted(path: Sequence[Key]) -> str:
    """`rewards[1].weight` for ("rewards", 1, "weight")."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return (text if text.isprintable() else ascii(text)[1:-1]).removeprefix(".")


def deepest_node(root: Node, path: Sequence[Key]) -> tuple[Node, int]:
    """The deepest node along `path`, and the number of keys to it."""
    node = root
    for depth, key in enumerate(path):
        child = node.get(key)
        if child is None:
            return node, depth
        node = child
    return node, len(path)


def plain(node: Node) -> Any:
    """The value without its places."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return None if isinstance(node.value, Unreadable) else node.value


def wrap(value: Any, like: Node) -> Node:
    """A plain value as a tree whose every node has the place of `like`."""
    if isinstance(value, dict):
        return replace(like, value={key: wrap(child, like) for key, child in value.items()})
    if isinstance(value, list | tuple):
        return replace(like, value=[wrap(child, like) for child in value])
    return replace(like, value=value)


class UnresolvedError(ValueError):
    """Why a text with `${...}` cannot be filled in, and what to write."""


def walk(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
    """Every node below and including `node`, with its path from there, parents first."""
    waiting = [(path, node)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        if isinstance(node.value, dict | list):
            below = node.value.items() if isinstance(node.value, dict) else enumerate(node.value)
            waiting += [((*path, key), child) for key, child in below][::-1]


def edit(root: Node, path: Sequence[Key], change: Callable[[Node], Node]) -> Node:
    """The tree with the node at a path changed, where there is one."""
    if not path:
        return change(root)
    child = root.get(path[0])
    return root if child is None else root.with_child(path[0], edit(child, path[1:], change))


def edit_leaves(node: Node, change: Callable[[KeyPath, Node], Node], path: KeyPath = ()) -> Node:
    """The tree with every value changed that is neither a mapping nor a list."""
    if isinstance(node.value, dict):
        below = {key: edit_leaves(child, change, (*path, key)) for key, child in node.value.items()}
        return replace(node, value=below)
    if isinstance(node.value, list):
        items = [edit_leaves(child, change, (*path, index)) for index, child in enumerate(node.value)]
        return replace(node, value=items)
    return change(path, node)


def replace_text(node: Node, pattern: re.Pattern[str], by: Callable[[re.Match[str]], str]) -> Node:
    """A text with every match of a pattern replaced; any other value as it is."""
    return replace(node, value=pattern.sub(by, node.value)) if isinstance(node.value, str) else node


def merge(base: Node, over: Node) -> Node:
    """`over` on top of `base`: mappings merge key by key, everything else is replaced.

    A mapping that names another `kind` replaces: the keys of one kind mean nothing to another.
    """
    if not isinstance(base.value, dict) or not isinstance(over.value, dict) or _other_kind(base, over):
        return over
    merged = dict(base.value)
    for key, child in over.value.items():
        merged[key] = merge(merged[key], child) if key in merged else child
    return replace(over, value=merged)


def _other_kind(base: Node, over: Node) -> bool:
    kinds = base.get("kind"), over.get("kind")
    return kinds[0] is not None and kinds[1] is not None and kinds[0].value != kinds[1].value


# One pydantic error as one sentence: what was there; what is allowed. What to write.


def show(value: Any) -> str:
    """A value as a message names it: scalars as JSON, collections by their size."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:56] + '..."'
