"""Values with their places: what the reader yields, the layers merge, and every fault points into.

A `Node` tree is a YAML document, or several merged ones, in which each value still knows its file, line and column.
Invariant: nothing here changes a value; merging only chooses among values.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from rlf.core import Fault, Place, nearest

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

_TYPES = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("gt", "a number greater than {}"),
    "greater_than_equal": ("ge", "a number of at least {}"),
    "less_than": ("lt", "a number less than {}"),
    "less_than_equal": ("le", "a number of at most {}"),
    "string_pattern_mismatch": ("pattern", "text that matches {}"),
    "string_too_short": ("min_length", "text of at least {} characters"),
    "string_too_long": ("max_length", "text of at most {} characters"),
    "too_short": ("min_length", "a list of at least {}"),
    "too_long": ("max_length", "a list of at most {}"),
}
_EXAMPLES = {
    "a whole number": "8",
    "a number": "0.5",
    "text": "...",
    "text that is not empty": "...",
    "true or false": "true",
    "a list": "[...]",
    "a mapping": "{...}",
}


def expected(error: ErrorDetails) -> str | None:
    """Describes the values that are allowed; None for an error that says so itself."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        name, phrase = _BOUNDS[kind]
        bound = context[name]
        if kind == "string_too_short" and bound == 1:
            return "text that is not empty"
        return phrase.format(f"{bound:g}" if isinstance(bound, float) else bound)
    if kind in ("enum", "literal_error"):
        return "one of " + ", ".join(_choice_names(context))
    return None


def wrong_value_words(
    got: str, errors: Sequence[ErrorDetails], key: str, field: FieldInfo | None, meant: str | None = None
) -> str:
    """The sentence for a value that is of no allowed type or out of range; several errors are a union's arms.

    Args:
        meant: the value as the key takes it, where that is known.
    """
    phrases = list(dict.fromkeys(phrase for phrase in map(expected, errors) if phrase))
    if not phrases:
        return own_words(errors[0])
    example = f" Write `{key}: {meant}`." if meant else _example_sentence(key, errors[0], phrases, field)
    return f"got {got}; expected {' or '.join(phrases)}.{example}"


def own_words(error: ErrorDetails) -> str:
    """The message of a validator, which is complete."""
    cause = error.get("ctx", {}).get("error")
    words = str(cause) if isinstance(cause, Exception) else error["msg"]
    return words if words.endswith(".") else f"{words}."


def missing(key: str, meaning: str, choices: Sequence[str], usual: str | None = None) -> str:
    """The sentence for a key that must be there.

    Args:
        choices: the values that it may have; empty where they are not a few.
        usual: that of them which is suggested; None: the first.
    """
    what = meaning.split("\n")[0].rstrip(".")
    if choices:
        example = usual if usual in choices else choices[0]
        return f"the key {key!r} is missing; expected one of {', '.join(choices)}. Write e.g. `{key}: {example}`."
    return f"the key {key!r} is missing{f' ({what})' if what else ''}. Write `{key}: ...`."


def unknown(key: str, known: Sequence[str], accepted: Sequence[str] = ()) -> str:
    """The sentence for a key that nothing reads.

    Args:
        known: keys that could stand there.
        accepted: other names for some of them; suggested, not listed.
    """
    close = nearest(key, [*known, *accepted])
    if not known:
        return f"unknown key {key!r}{close or '.'} {'Rename' if close else 'Remove'} it."
    fix = "Rename it" if close else "Remove it"
    return f"unknown key {key!r}{close} (known: {', '.join(sorted(known))}). {fix}."


def show(value: Any) -> str:
    """A value as a message names it: scalars as JSON, collections by their size."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:56] + '..."'


def _choice_names(context: Mapping[str, Any]) -> list[str]:
    text: str = context["expected"]
    return [choice.strip(" '") for choice in text.replace(" or ", ", ").split(",")]


def _example_sentence(key: str, error: ErrorDetails, phrases: Sequence[str], field: FieldInfo | None) -> str:
    example = _nearest_value(error) or _default_value(field) or _example_for(error, phrases[0])
    place = "- " if key.isdigit() else f"{key}: "
    return f" Write e.g. `{place}{example}`." if key and example else ""


def _nearest_value(error: ErrorDetails) -> str | None:
    """The allowed value that is closest to what was there."""
    got, context = error["input"], error.get("ctx", {})
    if error["type"] == "string_type" and isinstance(got, int | float):
        return json.dumps(json.dumps(got))
    if not isinstance(got, str):
        return None
    if error["type"] in ("enum", "literal_error"):
        close = difflib.get_close_matches(got, _choice_names(context), n=1)
        return close[0] if close else None
    if error["type"] == "string_pattern_mismatch":
        cleaned = re.sub(r"\W+", "_", got, flags=re.ASCII)
        return cleaned if re.search(context["pattern"], cleaned) else None
    return None


def _example_for(error: ErrorDetails, phrase: str) -> str | None:
    context = error.get("ctx", {})
    if error["type"] in ("enum", "literal_error"):
        return _choice_names(context)[0]
    bound = context.get("ge", context.get("le"))
    return _EXAMPLES.get(phrase) if bound is None else str(bound)


def _default_value(field: FieldInfo | None) -> str | None:
    if field is None or field.default in (None, PydanticUndefined):
        return None
    if isinstance(field.default, Enum):
        return str(field.default.value)
    if isinstance(field.default, bool | int | float) or (isinstance(field.default, tuple) and field.default):
        return json.dumps(field.default)
    return field.default if isinstance(field.default, str) and field.default else None
