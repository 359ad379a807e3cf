"""Values under another library's names, moved to where the spec has them; `rlf.spec.reading.aliases` has the names.

Invariant: a value keeps its place and the path under which it was said, so that faults name what the user wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rlf.core import Fault
from rlf.spec.models import RunSpec
from rlf.spec.reading.aliases import ALIASES, NEAR_MISSES, Alias, names_below, sections
from rlf.spec.reading.nodes import KeyPath, Node, dotted, find, plain, walk, wrap
from rlf.spec.reading.sentences import show, unknown

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A value and the canonical path it goes to."""

    path: Path
    node: Node
    weak: bool = False
    """Whether it stands back for what the same layer says at that path."""


def canonical_names(root: Node, faults: list[Fault]) -> Node:
    """One layer with every value under its canonical name. Two names that disagree are a fault."""
    rest, moves = take_aliases(root, faults)
    for move in sorted(moves, key=lambda move: move.weak):
        rest = _put_move(rest, move, faults)
    return rest


def take_aliases(root: Node, faults: list[Fault]) -> tuple[Node, list[Move]]:
    """The layer without the values under other names, and the keys that those belong to."""
    moves: list[Move] = []
    for alias, path in _PATHS:
        node, depth = find(root, path)
        if depth < len(path) or node is root:
            continue
        root = without(root, path)
        if node.value is not None:  # null is how those libraries leave a setting out
            moves += _make_moves(alias, node, faults)
    return _without_foreign_sections(root, faults), moves


def aliased(path: Sequence[str]) -> tuple[Path, ...]:
    """The canonical paths of an accepted name; none for any other path."""
    for alias, name in _PATHS:
        if name == tuple(path):
            return tuple(tuple(target.split(".")) for target in (*alias.canonical, *alias.also))
    return ()


_PATHS = tuple((alias, tuple(name.split("."))) for alias in ALIASES for name in alias.names)
_SECTIONS = sections() - set(RunSpec.model_fields)
"""Sections that only other libraries have."""


def _make_moves(alias: Alias, node: Node, faults: list[Fault]) -> Iterator[Move]:
    paths = [tuple(target.split(".")) for target in alias.canonical]
    if len(paths) == 1:
        value = replace(node, value=alias.values.get(_value_word(node), node.value))
        yield Move(paths[0], value)
        yield from (Move(tuple(target.split(".")), value, weak=True) for target in alias.also)
    elif len(node.items) == len(paths):
        yield from (Move(path, item) for path, item in zip(paths, node.items, strict=True))
    else:
        words = ", ".join(path[-1] for path in paths)
        faults.append(node.fault(f"got {show(plain(node))}; expected a list [{words}]. Write e.g. `[0.2, 0.28]`."))
    yield from (Move(tuple(key.split(".")), wrap(value, node), weak=True) for key, value in alias.implies.items())


def _value_word(node: Node) -> str:
    value = node.value
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else ""


def _put_move(root: Node, move: Move, faults: list[Fault]) -> Node:
    there, depth = find(root, move.path)
    if depth < len(move.path) and isinstance(there.value, dict):
        return _with_child(root, move.path, move.node)
    if not move.weak and plain(there) != plain(move.node):
        faults.append(_disagreement_fault(move, there))
    return root


def _disagreement_fault(move: Move, there: Node) -> Fault:
    name = dotted(move.path)
    both = name if there.path == move.path else f"{dotted(there.path)}, which is {name} too,"
    message = (
        f"got {_show_node(move.node)}, but {both} says {_show_node(there)} at {there.place}; one value has one name."
    )
    return move.node.fault(f"{message} Remove one of them.")


def _show_node(node: Node) -> str:
    return show(plain(node))


def _with_child(node: Node, path: Sequence[str], child: Node, done: Path = ()) -> Node:
    if not path:
        return child
    empty = replace(child, value={}, path=(*done, path[0]))
    below = _with_child(node.mapping.get(path[0], empty), path[1:], child, (*done, path[0]))
    return replace(node, value={**node.mapping, path[0]: below})


def without(node: Node, path: KeyPath) -> Node:
    """The tree without the value at a path, and without the mappings that this leaves empty."""
    key, rest = path[0], path[1:]
    assert isinstance(key, str), f"a name with an index: {path}"
    entries = dict(node.mapping)
    child = without(entries[key], rest) if rest else None
    if child is None or not child.mapping:
        del entries[key]
    else:
        entries[key] = child
    return replace(node, value=entries)


def _without_foreign_sections(root: Node, faults: list[Fault]) -> Node:
    """Removes other libraries' sections; each key that they still hold is reported, not the section."""
    foreign = [key for key in root.mapping if key in _SECTIONS and isinstance(root.mapping[key].value, dict)]
    for section in foreign:
        for path, node in walk(root.mapping[section], (section,)):
            if not node.mapping:
                faults.append(node.fault(unknown_key(path), at_key=True))
    return replace(root, value={key: child for key, child in root.mapping.items() if key not in foreign})


def unknown_key(path: KeyPath, known: Sequence[str] = ()) -> str:
    """The sentence for a key of a spec that nothing reads, with the nearest of our names and the accepted ones."""
    key = str(path[-1])
    if key in NEAR_MISSES:
        return f"unknown key {key!r}: {NEAR_MISSES[key]}"
    return unknown(key, known, names_below(path[:-1]))
