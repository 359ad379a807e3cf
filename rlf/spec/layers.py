"""Layers of a spec: what a file extends, the files it uses, and how several become one tree.

Later layers win: key by key in mappings, by name in the lists of tools and rewards. A list item that is a whole file
replaces an earlier one of its name; an inline one is laid over it.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.core import Fault, RlfError, hash_bytes
from rlf.core.files import shown_path
from rlf.core.text import find_half
from rlf.spec.aliases import aliased, canonical_names, with_variables
from rlf.spec.nodes import (
    UNREADABLE,
    KeyPath,
    Node,
    UnresolvedError,
    deepest_node,
    dotted,
    edit,
    edit_leaves,
    merge,
    plain,
    replace_text,
    show,
    walk,
    wrap,
)
from rlf.spec.reader import read_file, take_env_file

if TYPE_CHECKING:
    from rlf.spec.references import References

# `${...}` in values: filled in from other keys and the environment, and put back as text where values are shown.

_KEY = re.compile(r"(?<!\\)\$\{([A-Za-z_][\w.]*)\}")
"""A reference to a key, by its whole path."""


def interpolate(root: Node, faults: list[Fault]) -> Node:
    """The tree with every `${...}` replaced by what it stands for."""
    if not any(_is_reference(node.value) for _, node in walk(root)):
        return root

    from rlf.spec.references import References

    # `${rollout.n}` as `${rollout.num_generations}`: values lie under the spec's own names by now.
    root = edit_leaves(root, lambda _, node: replace_text(node, _KEY, _our_name))
    references = References(plain(root))
    return edit_leaves(root, lambda path, node: _resolve_node(path, node, references, faults))


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and "${" in value


def _our_name(reference: re.Match[str]) -> str:
    ours = aliased(reference[1].split("."))
    return f"${{{'.'.join(ours[0])}}}" if ours else reference[0]


@dataclass(frozen=True, slots=True)
class Interpolation:
    """A value that was filled in, and from what."""

    path: KeyPath
    text: str


def write_back(values: dict[str, Any], interpolated: Sequence[Interpolation]) -> None:
    """Puts the text in place of each value that was filled in."""
    for item in interpolated:
        _put_value(values, item.path, item.text)


def restore(values: dict[str, Any], interpolated: Sequence[Interpolation]) -> None:
    """Undoes `write_back` with the environment as it is now. Raises RlfError where it lacks a variable."""
    if not interpolated:
        return

    from rlf.spec.references import References

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


ITEM_LISTS = {"tools": "tool", "rewards": "reward"}
"""Lists of the spec whose items may be files, with the role of such a file."""
BARE_KINDS: tuple[tuple[str, ...], ...] = (("engine",), ("train", "algorithm"))
"""Mappings that may be written as the bare name of their kind."""
BARE_KIND_LISTS = ("report_to",)
"""Lists of such mappings, which may be written as their only item."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file that a spec was read from."""

    role: str
    """`spec`, `tool`, `reward`, `code`, `data` or `model`."""
    path: str
    """As messages show it: relative to the current folder when below it."""
    sha256: str

    @property
    def absolute(self) -> Path:
        """The path on this machine."""
        return absolute(Path(self.path), Path.cwd())


@dataclass(slots=True)
class Reading:
    """Reads one spec, and gathers its files and faults."""

    texts: Mapping[Path, str] = field(default_factory=dict)
    """Texts that are read in place of files, by absolute path."""
    faults: list[Fault] = field(default_factory=list)
    files: dict[str, InputFile] = field(default_factory=dict)

    def read(self, path: Path, role: str, named_by: Node | None) -> Node | None:
        """One file's tree, recorded among the files."""
        found = read_file(path, named_by, self.faults, self.texts.get(path))
        if found is None:
            return None
        shown = shown_path(path)
        self.files[shown] = InputFile(role, shown, hash_bytes(found[1]))
        return None if role == "tool" and self._is_foreign(found[0]) else found[0]

    def layers(self, files: Sequence[Path]) -> Node | None:
        """The files of a command line, left to right, as one tree; None when one could not be read."""
        trees = [self.layer(absolute(path, Path.cwd()), None, ()) for path in files]
        return stack([tree for tree in trees if tree is not None]) if None not in trees else None

    def layer(self, path: Path, named_by: Node | None, chain: tuple[Path, ...]) -> Node | None:
        """One file on top of what it extends."""
        if path in chain and named_by is not None:
            circle = " -> ".join(shown_path(step) for step in (*chain[chain.index(path) :], path))
            self.faults.append(named_by.fault(f"`extends` forms a circle: {circle}. Remove one of these links."))
            return None
        root = self.read(path, "spec", named_by)
        if root is None:
            return None
        take_env_file(path.parent, self.faults)
        extends = root.get("extends")
        own = replace(root, value={key: child for key, child in root.mapping.items() if key != "extends"})
        bases = [self.layer(base, node, (*chain, path)) for base, node in self._read_bases(extends)]
        trees = [tree for tree in bases if tree is not None]
        own = canonical_names(self.spell_out(own), self.faults)
        return stack([*trees, own]) if len(trees) == len(bases) else None

    def _read_bases(self, extends: Node | None) -> list[tuple[Path, Node]]:
        if extends is None:
            return []
        named = extends.items if isinstance(extends.value, list) else [extends]
        paths = [(self.path_of(node, "a path to a spec, or a list of them", "base.yaml"), node) for node in named]
        return [(path, node) for path, node in paths if path is not None]

    def path_of(self, node: Node, expected: str, example: str) -> Path | None:
        """The path that a node names, from the folder of the file that says it."""
        if not isinstance(node.value, str):
            self.faults.append(node.fault(f"got {show(plain(node))}; expected {expected}. Write e.g. `{example}`."))
            return None
        resolved = interpolate(replace(node, value={"path": node}), self.faults).mapping["path"]
        text = resolved.value if isinstance(resolved.value, str) else None
        return None if text is None else absolute(Path(text), node.folder)

    def spell_out(self, root: Node) -> Node:
        """Bare kinds as mappings, and list items that name files as what the files hold."""
        for path in BARE_KINDS:
            root = edit(root, path, bare_kind)
        for key in BARE_KIND_LISTS:
            root = edit(root, (key,), _bare_kinds)
        for key, role in ITEM_LISTS.items():
            root = edit(root, (key,), lambda node, role=role: self._read_items(node, role))  # type: ignore[misc]
        return root

    def with_agents_tools(self, tool: Node, chain: tuple[Path, ...] = ()) -> Node:
        """A tool whose `target` is an agent with the files that the agent's own tools name, whatever their depth."""
        kind, _ = deepest_node(tool, ("target", "kind"))
        if kind.value != "agent":
            return tool
        return edit(tool, ("target", "tools"), lambda node: self._read_items(node, "tool", chain))

    def _read_items(self, node: Node, role: str, chain: tuple[Path, ...] = ()) -> Node:
        if not isinstance(node.value, list):
            return node
        return replace(node, value=[with_variables(self._read_item(item, role, chain)) for item in node.value])

    def _read_item(self, item: Node, role: str, chain: tuple[Path, ...]) -> Node:
        use = item if isinstance(item.value, str) else item.get("use")
        if use is None:
            foreign = role == "tool" and self._is_foreign(item)
            return replace(item, value=UNREADABLE) if foreign else self.with_agents_tools(item, chain)
        if isinstance(use.value, str) and not use.value.endswith((".yaml", ".yml", ".json")):
            from rlf.spec.mistaken import not_this_role

            if (message := not_this_role(use.value, role, use.folder)) is not None:
                self.faults.append(use.fault(message))
                return replace(item, value=UNREADABLE)
        path = self.path_of(use, f"a path to a {role} file", f"../{role}_specs/name.yaml")
        if path in chain:
            circle = " -> ".join(shown_path(step) for step in (*chain[chain.index(path) :], path))
            self.faults.append(use.fault(f"agents call each other in a circle: {circle}. Remove one of these tools."))
            return replace(item, value=UNREADABLE)
        file = None if path is None else self.read(path, role, use)
        if path is None or file is None:
            return replace(item, value=UNREADABLE)
        rest = {key: child for key, child in item.mapping.items() if key != "use"}
        whole = replace(file, value=merge(file, replace(item, value=rest)).value, key_place=item.place)
        return self.with_agents_tools(whole, (*chain, path))

    def _is_foreign(self, item: Node) -> bool:
        """Whether a tool is in the form of another API, which adds its one fault."""
        if not {"function", "type"} & item.mapping.keys():
            return False
        from rlf.spec.mistaken import foreign_form

        message = foreign_form(item)
        self.faults += [] if message is None else [item.fault(message)]
        return message is not None


def absolute(path: Path, folder: Path) -> Path:
    """The path from a folder, without `..` and without following links; `~` is the home folder where it has one."""
    return Path(os.path.normpath(folder / os.path.expanduser(path)))  # noqa: PTH111 - Path's own raises where `~x` is nobody


def stack(trees: Sequence[Node]) -> Node:
    """Trees of whole specs, the later over the earlier."""
    result = trees[0]
    for over in trees[1:]:
        merged = dict(merge(result, over).mapping)
        for key in ITEM_LISTS:
            lists = result.get(key), over.get(key)
            if lists[0] is not None and lists[1] is not None and lists[0].items and lists[1].items:
                merged[key] = replace(lists[1], value=_by_name(lists[0].items, lists[1].items))
        result = replace(over, value=merged)
    return result


def _by_name(base: Sequence[Node], over: Sequence[Node]) -> list[Node]:
    items = list(base)
    names = [_item_name(item) for item in base]
    for item in over:
        name = _item_name(item)
        if name is None or name not in names:
            items.append(item)
            continue
        at = names.index(name)
        items[at] = item if item.path == () else merge(items[at], item)
    return items


def _item_name(item: Node) -> str | None:
    name = item.get("name")
    return name.value if name is not None and isinstance(name.value, str) else None


def bare_kind(node: Node) -> Node:
    """A kind's bare name as the mapping that it stands for."""
    return replace(node, value={"kind": node}) if isinstance(node.value, str) else node


def _bare_kinds(node: Node) -> Node:
    if isinstance(node.value, list):
        return replace(node, value=[bare_kind(item) for item in node.items])
    return replace(node, value=[bare_kind(node)]) if isinstance(node.value, str | dict) else node
