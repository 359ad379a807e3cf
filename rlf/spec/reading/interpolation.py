"""`${...}` in values: filled in from other keys and the environment, and put back as text where values are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlf.core import Fault, RlfError
from rlf.core.text import find_half
from rlf.spec.reading.names import aliased
from rlf.spec.reading.nodes import KeyPath, Node, dotted, edit_leaves, plain, replace_text, walk, wrap

if TYPE_CHECKING:
    from rlf.spec.reading.references import References

_KEY = re.compile(r"(?<!\\)\$\{([A-Za-z_][\w.]*)\}")
"""A reference to a key, by its whole path."""


class UnresolvedError(ValueError):
    """Why a text cannot be filled in, and what to write."""


def interpolate(root: Node, faults: list[Fault]) -> Node:
    """The tree with every `${...}` replaced by what it stands for."""
    if not any(_is_reference(node.value) for _, node in walk(root)):
        return root
    from rlf.spec.reading.references import References

    root = _with_our_names(root)
    references = References(plain(root))
    return edit_leaves(root, lambda path, node: _resolve_node(path, node, references, faults))


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and "${" in value


def _with_our_names(root: Node) -> Node:
    """The tree with `${rollout.n}` as `${rollout.num_generations}`: values lie under the spec's own names by now."""
    return edit_leaves(root, lambda _, node: replace_text(node, _KEY, _our_name))


def _our_name(reference: re.Match[str]) -> str:
    ours = aliased(reference[1].split("."))
    return f"${{{'.'.join(ours[0])}}}" if ours else reference[0]


def interpolate_path(node: Node, faults: list[Fault]) -> str | None:
    """A path that names a file to read: the environment is known by then, the spec's keys are not."""
    resolved = interpolate(replace(node, value={"path": node}), faults).mapping["path"]
    return resolved.value if isinstance(resolved.value, str) else None


@dataclass(frozen=True, slots=True)
class Interpolated:
    """A value that was filled in, and from what."""

    path: KeyPath
    text: str


def write_back(values: dict[str, Any], interpolated: Sequence[Interpolated]) -> None:
    """Puts the text in place of each value that was filled in."""
    for item in interpolated:
        _put_value(values, item.path, item.text)


def fill_in(values: dict[str, Any], interpolated: Sequence[Interpolated]) -> None:
    """Undoes `write_back` with the environment as it is now. Raises RlfError where it lacks a variable."""
    if not interpolated:
        return
    from rlf.spec.reading.references import References

    references = References(values)
    for item in interpolated:
        try:
            _put_value(values, item.path, references.value(item.path, item.text))
        except UnresolvedError as error:
            raise RlfError(f"{dotted(item.path)}: {item.text!r} cannot be filled in: {error}") from error


def _resolve_node(path: KeyPath, node: Node, references: References, faults: list[Fault]) -> Node:
    if not isinstance(node.value, str) or not _is_reference(node.value):
        return node
    try:
        value = references.value(path, node.value)
        if isinstance(value, str) and (half := find_half(value)) is not None:  # the environment holds bytes
            raise UnresolvedError(f"its value is not UTF-8; it holds {half}. Set it to UTF-8 text")
        return replace(wrap(value, node), written=node.value)
    except UnresolvedError as error:
        faults.append(node.fault(f"{node.value!r} cannot be filled in: {error}"))
        return replace(node, value=None)


def _put_value(values: Any, path: KeyPath, value: Any) -> None:
    for key in path[:-1]:
        values = values[key]
    values[path[-1]] = value
