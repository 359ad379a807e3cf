"""`key=value` of the command line: `a.b=v` sets, `+a.b=v` adds, `~a.b` deletes. Values are YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlf.core import Fault, Place, nearest
from rlf.core.redact import clean
from rlf.core.text import find_half
from rlf.spec.aliases import Move, aliased, take_aliases
from rlf.spec.layers import ITEM_LISTS
from rlf.spec.nodes import OVERRIDE, Key, KeyPath, Node, deepest_node, dotted, merge, plain, show
from rlf.spec.reader import read_override

# The path ends at the first `=`, since values may hold more of them; DOTALL, since values may have line breaks.
_FORM = re.compile(r"(?P<sign>[+~]?)(?P<path>[^=]*)(?:=(?P<value>.*))?", re.DOTALL)
_PLACE = Place(OVERRIDE)
_EVALUATION = (("eval",), ("data", "eval"))
"""Settings and data of the evaluation. One without the other is a fault, or an evaluation that nobody asked for."""


class _Refused(Exception):
    """Why an override does not apply."""


@dataclass(frozen=True, slots=True)
class _Override:
    sign: str
    path: tuple[str, ...]
    value: str | Node | None
    """The text, or what was read from it; None deletes."""


def apply_override(root: Node, text: str, faults: list[Fault]) -> Node:
    """The tree with one override applied, or the same tree and a fault."""
    try:
        parsed = _parse_override(text)
        if parsed.sign == "~" and parsed.path in _EVALUATION:
            return _without_evaluation(root)
        for override in _under_our_names(parsed, faults):
            root = _change_below(root, override, (), faults)
        return root
    except _Refused as refused:
        faults.append(Fault(_PLACE, clean(text), str(refused)))
        return root


def _without_evaluation(root: Node) -> Node:
    """The tree in which nothing is evaluated; `~eval` and `~data.eval` may both ask for it."""
    data = root.get("data")
    if data is not None and data.get("eval") is not None:
        root = root.with_child("data", data.without_child("eval"))
    return root if root.get("eval") is None else root.without_child("eval")


def find_disagreements(texts: Sequence[str]) -> Iterator[Fault]:
    """Overrides that give one key two values under two names; under one name the last of them holds."""
    written: dict[KeyPath, tuple[str, object]] = {}
    for text in texts:
        name = text.partition("=")[0]
        for path, value in _override_values(text):
            other, before = written.setdefault(path, (name, value))
            if other != name and before != value:
                key = "" if other == dotted(path) else f", which is {dotted(path)} too,"
                message = f"got {show(value)}, but {other}{key} says {show(before)}; one value has one name."
                yield Fault(_PLACE, name, f"{message} Remove one of them.")


def _override_values(text: str) -> Iterator[tuple[KeyPath, object]]:
    """The keys of ours that an override sets, with their values; nothing of one that does not apply."""
    unread: list[Fault] = []
    try:
        override = _parse_override(text)
    except _Refused:
        return
    value = read_override(str(override.value), _PLACE, override.path, Path.cwd(), unread)
    if override.sign or value is None:
        return
    yield override.path, plain(value)
    moves = take_aliases(_wrap_in_path(value, override.path), unread)[1]
    yield from ((move.path, plain(move.node)) for move in moves if not move.weak)


def _parse_override(text: str) -> _Override:
    match = _FORM.fullmatch(text)
    assert match is not None, f"the form takes any text: {text!r}"
    if (half := find_half(match["path"])) is not None:
        raise _Refused(f"got {half} in a key, half of a character (a surrogate). Write UTF-8.")
    path = tuple(re.sub(r"\[(\d+)\]", r".\1", match["path"].strip()).split("."))
    if not all(path):
        raise _Refused("this names no key; expected a dotted path. Write e.g. train.steps=10.")
    if match["path"].startswith("+"):
        raise _Refused(f"`++` is Hydra's, which sets and adds. Write {text[2:]}; `+` adds what is not there.")
    if match["sign"] == "~" and match["value"] is not None:
        raise _Refused(f"`~` deletes and takes no value. Write ~{match['path']}.")
    if match["sign"] != "~" and match["value"] is None:
        raise _Refused(f"got no value. Write {text}=VALUE, or ~{match['path']} to delete the key.")
    return _Override(match["sign"], path, match["value"])


def _under_our_names(override: _Override, faults: list[Fault]) -> list[_Override]:
    """The same override for our own keys, where it or a mapping that it sets uses names of other libraries."""
    path = override.path
    if override.value is None:
        return [replace(override, path=target) for target in aliased(path)] or [override]
    if any(key.isdecimal() for key in path) or (override.sign == "+" and path[0] in ITEM_LISTS):
        return [override]
    value = read_override(str(override.value), _PLACE, path, Path.cwd(), faults)
    if value is None:
        return []
    rest, moves = take_aliases(_wrap_in_path(value, path), faults)
    kept, depth = deepest_node(rest, path)
    if not moves and depth == len(path):
        return [override]
    own = [replace(override, value=kept)] if depth == len(path) and kept.mapping else []
    strong = {move.path for move in moves if not move.weak}
    return own + [_follow_move(override.sign, move) for move in moves if not move.weak or move.path not in strong]


def _follow_move(sign: str, move: Move) -> _Override:
    """A kind is set as the mapping around it: it takes the place of another kind with its keys."""
    if move.path[-1] == "kind":
        return _Override(sign, move.path[:-1], replace(move.node, value={"kind": move.node}))
    return _Override("" if move.weak else sign, move.path, move.node)


def _change_below(node: Node, override: _Override, done: KeyPath, faults: list[Fault]) -> Node:
    """`node` lies at `done`; the change is somewhere below it."""
    name, rest = override.path[0], override.path[1:]
    if isinstance(node.value, list):
        if not name.isdecimal() or int(name) >= len(node.items):
            known = f"an index from 0 to {len(node.items) - 1}" if node.items else "no index, since the list is empty"
            raise _Refused(
                f"`{dotted(done)}` has no item {name!r}; expected {known}. Write +{dotted(done)}=VALUE to add an item."
            )
        key: Key = int(name)
    elif isinstance(node.value, dict) or node.value is None:
        key = name
    else:
        raise _Refused(f"`{dotted(done)}` is {node.value!r} and holds no keys. Override `{dotted(done)}` itself.")
    path, child = (*done, key), node.get(key)
    if rest:
        below = child if child is not None else _find_node({}, path)
        return node.with_child(key, _change_below(below, replace(override, path=rest), path, faults))
    return _apply_override(node, key, override, path, faults)


def _apply_override(node: Node, key: Key, override: _Override, path: KeyPath, faults: list[Fault]) -> Node:
    child = node.get(key)
    if override.sign == "~":
        if child is None:
            known = nearest(str(key), list(node.mapping)) or "."
            raise _Refused(f"no file sets `{dotted(path)}`{known} Delete a key that a file sets.")
        return node.without_child(key)
    if override.sign == "+" and child is not None and not isinstance(child.value, list):
        raise _Refused(f"`{dotted(path)}` is set already; `+` adds what is not there. Write it without the +.")
    adds_item = override.sign == "+" and child is not None
    said_at = (*path, len(child.items)) if adds_item and child is not None else path
    value = override.value
    if not isinstance(value, Node):
        value = read_override(value or "", _PLACE, said_at, Path.cwd(), faults)
    if value is None:
        return node
    if adds_item and child is not None:
        return node.with_child(key, replace(child, value=[*child.items, value]))
    return node.with_child(key, merge(child, value) if child is not None else value)


def _wrap_in_path(value: Node, path: Sequence[str]) -> Node:
    """The whole tree in which a value alone lies at a path."""
    for key in reversed(path):
        value = _find_node({key: value}, ())
    return value


def empty_tree() -> Node:
    """A spec of no file, for overrides to fill."""
    return _find_node({}, ())


def _find_node(value: dict[str, Node], path: KeyPath) -> Node:
    return Node(value, _PLACE, _PLACE, path, Path.cwd())


Overrides = tuple[str, ...]
