"""Names that TRL, verl and OpenRLHF give to what the spec has a name for: accepted, stored under the spec's own name.

The names stand in `aliases.yaml`, which the table of the documentation is made from, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlf.core import Fault
from rlf.core.yaml_text import load_document
from rlf.spec.models import RunSpec
from rlf.spec.nodes import KeyPath, Node, deepest_node, dotted, edit, edit_leaves, plain, replace_text, show, walk, wrap


class Library(StrEnum):
    """Whose name it is."""

    TRL = "TRL"
    """`GRPOConfig` and `ModelConfig`; its keys are flat and go under `train`."""
    VERL = "verl"
    """`ppo_trainer.yaml`, by whole path or in the spec's own section."""
    OPENRLHF = "OpenRLHF"
    """The dotted flags of `train_ppo_ray`, and the flat ones before 0.10 under `train`."""


@dataclass(frozen=True, slots=True)
class Alias:
    """Names of one library for one value."""

    source: Library
    names: tuple[str, ...]
    """Dotted keys, from the top of a spec."""
    canonical: tuple[str, ...]
    """The dotted key of ours; several take the items of a list, in order."""
    also: tuple[str, ...]
    """Keys that take the same value, unless the same file gives them another."""
    implies: Mapping[str, str]
    """Settings that the name stands for beside its value, unless the same file says otherwise."""
    values: Mapping[str, str]
    """The library's words for values that are called otherwise here."""


def _read_table() -> tuple[tuple[Alias, ...], dict[str, str]]:
    """Every accepted name, and the names that look like ours and mean something else, each with what to write."""
    table = load_document((Path(__file__).parent / "aliases.yaml").read_text(encoding="utf-8"))
    aliases = tuple(_make_alias(source, *entry) for source in Library for entry in table[source].items())
    return aliases, {name: words for names, words in table["near"].items() for name in names.split()}


def _make_alias(source: Library, names: str, entry: str | dict[str, Any]) -> Alias:
    keys: dict[str, Any] = {"to": entry} if isinstance(entry, str) else entry
    canonical = (keys["to"],) if isinstance(keys["to"], str) else tuple(keys["to"])
    return Alias(
        source,
        tuple(names.split()),
        canonical,
        tuple(keys.get("also", ())),
        keys.get("implies", {}),
        keys.get("values", {}),
    )


ALIASES, NEAR_MISSES = _read_table()


def names_below(path: Sequence[str | int]) -> list[str]:
    """Accepted keys of the mapping at a path, beside its own."""
    prefix = tuple(map(str, path))
    parts = [tuple(name.split(".")) for alias in ALIASES for name in alias.names]
    found = [name[len(prefix)] for name in parts if len(name) == len(prefix) + 1 and name[: len(prefix)] == prefix]
    return list(dict.fromkeys(found))


def foreign_names(key: str) -> list[str]:
    """Our names for what other libraries call `key` within a section."""
    found = [alias.canonical[0] for alias in ALIASES for name in alias.names if name.split(".")[1:] == [key]]
    return list(dict.fromkeys(found))


def sections() -> frozenset[str]:
    """First parts of all accepted names."""
    return frozenset(name.partition(".")[0] for alias in ALIASES for name in alias.names)


# Values under another library's names, moved to where the spec has them; `rlf.spec.aliases` has the names.
#
# Invariant: a value keeps its place and the path under which it was said, so that faults name what the user wrote.

_Target = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A value and the canonical path it goes to."""

    path: _Target
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
        node, depth = deepest_node(root, path)
        if depth < len(path) or node is root:
            continue
        root = without(root, path)
        if node.value is not None:  # null is how those libraries leave a setting out
            moves += _make_moves(alias, node, faults)
    return _without_foreign_sections(root, faults), moves


def aliased(path: Sequence[str]) -> tuple[_Target, ...]:
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
    there, depth = deepest_node(root, move.path)
    if depth < len(move.path) and isinstance(there.value, dict):
        return _with_child(root, move.path, move.node)
    if not move.weak and plain(there) != plain(move.node):
        name = dotted(move.path)
        both = name if there.path == move.path else f"{dotted(there.path)}, which is {name} too,"
        message = f"got {show(plain(move.node))}, but {both} says {show(plain(there))} at {there.place}; one value has "
        faults.append(move.node.fault(f"{message}one name. Remove one of them."))
    return root


def _with_child(node: Node, path: Sequence[str], child: Node, done: _Target = ()) -> Node:
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
        from rlf.core.mistakes import explain

        for path, node in walk(root.mapping[section], (section,)):
            if not node.mapping and not any(isinstance(key, int) for key in path):
                hint = explain("keys", f"RunSpec {dotted(path)}", value=show(plain(node)))
                message = f"unknown key {path[-1]!r}: {hint[0]}" if hint else unknown_key(path)
                faults.append(node.fault(message, at_key=True))
    return replace(root, value={key: child for key, child in root.mapping.items() if key not in foreign})


def unknown_key(path: KeyPath, known: Sequence[str] = ()) -> str:
    """The sentence for a key of a spec that nothing reads, with the nearest of our names and the accepted ones."""
    key = str(path[-1])
    if key in NEAR_MISSES:
        return f"unknown key {key!r}: {NEAR_MISSES[key]}"
    from rlf.spec.mistaken import unknown

    return unknown(key, known, names_below(path[:-1]))


# `mcpServers` as other programs write it, in rlf's words: variables, and keys that mean nothing here.

SERVERS = "mcpServers"
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def with_variables(item: Node) -> Node:
    """`${NAME}` and `${NAME:-default}` within `mcpServers` as `${oc.env:NAME}`; any other item as it is."""
    return edit(
        item,
        (SERVERS,),
        lambda servers: edit_leaves(servers, lambda _, node: replace_text(node, _VARIABLE, _in_our_words)),
    )


def _in_our_words(match: re.Match[str]) -> str:
    name, default = match.groups()
    if default is None:
        return f"${{oc.env:{name}}}"
    quoted = default.replace("\\", "\\\\").replace("'", "\\'")
    return f"${{oc.env:{name},'{quoted}'}}"
