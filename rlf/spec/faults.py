"""What is wrong with a tree, in words: pydantic's errors as faults at their places, and what of a broken spec is sound.

Loaded where something is wrong: a sound spec is read without it and without the facts of every key.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rlf.core import Fault, UnknownKind, nearest
from rlf.core.kinds import Kind
from rlf.core.mistakes import explain, known
from rlf.spec.aliases import NEAR_MISSES, foreign_names, unknown_key
from rlf.spec.facts import field_doc
from rlf.spec.layers import BARE_KINDS
from rlf.spec.mistaken import filled_in, missing, own_words, rule_of, unknown, wrong_value_words
from rlf.spec.models import RunSpec
from rlf.spec.nodes import Key, KeyPath, Node, deepest_node, dotted, plain, show, walk

LEAST: dict[str, Any] = {
    "name": "any",
    "model": {"path": "builtin:tiny"},
    "data": {"train": {"path": "builtin:encyclopedia/train"}},
    "train": {"algorithm": {"kind": "grpo"}},
}
"""Stands in for the keys that every spec has, where they are missing or wrong; no check reads it."""


def value_at(values: Any, path: KeyPath) -> Any:
    """The value at a path of nested mappings; None where there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def faults_of(model: type[BaseModel], root: Node, errors: Sequence[ErrorDetails]) -> list[Fault]:
    """Pydantic's errors about the values of a tree as faults in its files.

    A union's errors, one for each arm, are about one value and become one fault.
    """
    if model is RunSpec and not {"model", "data", "train"} & set(root.mapping):
        is_tool = bool({"inputSchema", "target"} & set(root.mapping))
        if is_tool or {"rule", "callable", "endpoints"} & set(root.mapping):
            role = "tool" if is_tool else "reward"
            fix = f"Try it with `rlf {role}s test {root.place.file}`; a spec names it in its list `{role}s`."
            return [root.fault(f"this is a {role}'s file; expected a spec. {fix}")]
    groups: dict[tuple[KeyPath, bool], list[ErrorDetails]] = {}
    misspelt = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    for error in errors:
        if _seems_short(root, error) or (error["type"] == "missing" and _is_misspelt(error["loc"], misspelt)):
            continue
        about_key = error["type"] in ("missing", "extra_forbidden")
        path = error["loc"] if about_key else error["loc"][: deepest_node(root, error["loc"])[1]]
        groups.setdefault((path, about_key), []).append(error)
    return [_make_fault(model, root, path, group) for (path, _), group in groups.items()]


def _seems_short(root: Node, error: ErrorDetails) -> bool:
    """Whether a list is long enough as it is written, and was counted without its broken items."""
    node, depth = deepest_node(root, error["loc"])
    written = error["type"] == "too_short" and depth == len(error["loc"])
    return written and len(node.items) >= error["ctx"]["min_length"]


def _is_misspelt(missing_at: KeyPath, unknown_at: Sequence[KeyPath]) -> bool:
    """Whether a missing key is there under a name that is nearly its own: that is one fault, not two."""
    beside = [path for path in unknown_at if path[:-1] == missing_at[:-1]]
    return any(nearest(str(path[-1]), [str(missing_at[-1])]) for path in beside)


def _make_fault(model: type[BaseModel], root: Node, path: KeyPath, errors: Sequence[ErrorDetails]) -> Fault:
    node, depth = deepest_node(root, path)
    key = str(path[-1]) if path else ""
    if errors[0]["type"] == "missing":
        return _missing_fault(model, root, path)
    if errors[0]["type"] == "extra_forbidden":
        if hint := explain("keys", f"{model.__name__} {dotted(path)}", value=node.written or show(plain(node))):
            return node.fault(f"unknown key {key!r}: {hint[0]}", at_key=True)
        known = known_keys(model, root, path[:-1])
        if model is not RunSpec:
            return node.fault(unknown(key, known), at_key=True)
        sections = _in_sections(root, path) if len(path) == 1 else []
        if len(path) == 1 and not sections and key not in NEAR_MISSES and (meant := foreign_names(key)):
            message = f"unknown key {key!r}: it is called {' or '.join(meant)} here."
            return node.fault(message + _written_there(root, path, meant), at_key=True)
        if len(path) == 2 and key not in NEAR_MISSES and (elsewhere := _in_sections(root, path)):
            message = f"unknown key {key!r}: it belongs elsewhere. Write it as {' or '.join(elsewhere)}."
            return node.fault(message, at_key=True)
        return node.fault(unknown_key(path, [*known, *sections]) + _written_there(root, path, sections), at_key=True)
    assert depth == len(path), f"an error about {path}, which the tree does not hold"
    value = "" if node.written else json.dumps(plain(node), ensure_ascii=False, default=str)
    if hint := explain("values", f"{model.__name__} {dotted(path)} {value}", got=_show_value(root, path)):
        return node.fault(hint[0])
    if errors[0]["type"] == "unknown_kind":
        meant = errors[0]["ctx"]["meant"]
        return node.fault(f"{own_words(errors[0])} Write {meant or 'one of these'}.")
    field = field_at(model, root, path)
    example = filled_in(key, node, errors[0]["type"], field, path in BARE_KINDS)
    return node.fault(wrong_value_words(_show_value(root, path), errors, key, field, example))


def _in_sections(root: Node, path: KeyPath) -> list[str]:
    """A key by its whole path, where a section of the spec has one of that name."""
    return [f"{name}.{path[-1]}" for name in RunSpec.model_fields if path[-1] in known_keys(RunSpec, root, (name,))]


def _written_there(root: Node, path: KeyPath, sections: Sequence[str]) -> str:
    """Suggests the whole key where one at the top is meant for a section, with the kind that its value stands for."""
    node, _ = deepest_node(root, path)
    if len(sections) != 1 or not isinstance(node.value, str | int | float) or node.written is not None:
        return ""
    section = (*sections[0].split("."),)
    kind = meant_kind(RunSpec, root, section, str(node.value))
    equals = "=" if str(node.key_place).startswith("override") else ": "
    return f" Write `{sections[0]}{equals}{kind or node.value}`."


def _missing_fault(model: type[BaseModel], root: Node, path: KeyPath) -> Fault:
    node, _ = deepest_node(root, path)
    if isinstance(path[-1], int):
        return node.fault(f"got a list of {len(node.items)}; expected at least {path[-1] + 1} items. Add the others.")
    kinds = known_kinds(model, root, path) or known_kinds(model, root, (*path, "kind"))
    where: tuple[Key, ...] = (*node.path, path[-1])
    # A kind that has a key of its name, where that key is there: `rule` beside `rule: exact_match`.
    by_key = [known("kinds by key").get(key, key) for key in node.mapping]
    usual = value_at(LEAST, (*path, "kind")) or next((kind for kind in by_key if kind in kinds), None)
    words = missing(path[-1], doc_at(model, root, path), kinds, usual)
    if path[-1] == "kind" and node.path[:1] == ("rewards",) and (rule := rule_of(node)):
        return Fault(node.place, dotted(node.path), f"got {show(plain(node))} without its kind. Write `{rule}`.")
    form = known("missing").get(dotted(where), f"{path[-1]}: ...")
    return Fault(
        node.key_place if node.path else node.place, dotted(where), words.replace(f"`{path[-1]}: ...`", f"`{form}`")
    )


def _show_value(root: Node, path: KeyPath) -> str:
    """The value at a path as a message shows it; one that was filled in is shown as written, since it may be secret."""
    for length in range(len(path) + 1):
        node, _ = deepest_node(root, path[:length])
        if node.written is not None:
            return f"the value of {node.written}"
    return show(plain(deepest_node(root, path)[0]))


def find_booleans(model: type[BaseModel], root: Node) -> Iterator[Fault]:
    """The faults of `true` and `false` where a number belongs, which pydantic takes for 1 and 0."""
    for path, node in walk(root):
        if isinstance(node.value, bool) and path:
            arms = _types_at(model, root, path)
            if bool not in arms and (int in arms or float in arms):
                kind = "int_type" if int in arms else "float_type"
                yield _make_fault(model, root, path, [{"type": kind, "loc": path, "msg": "", "input": node.value}])


# What the models know of the key at a path: its field, the keys and the kinds beside it.


def known_keys(model: type[BaseModel], node: Node, path: Sequence[Key]) -> list[str]:
    """Keys that the mapping at `path` of a document may have; empty where the models do not say."""
    keys: list[str] = []
    for found in _types_at(model, node, path):
        if inspect.isclass(found) and issubclass(found, BaseModel):
            keys += [info.alias or name for name, info in found.model_fields.items()]
            keys += [base.chosen_by for base in _kind_bases(found)]
    return list(dict.fromkeys(keys))


def known_kinds(model: type[BaseModel], node: Node, path: Sequence[Key]) -> list[str]:
    """Names that the last key of `path` may have, where it is the one that chooses a model."""
    bases = [found for found in _types_at(model, node, path[:-1]) if found in _kind_bases(found)]
    return [name for base in bases if base.chosen_by == path[-1] for name in base.registry().names()]


def field_at(model: type[BaseModel], node: Node, path: Sequence[Key]) -> FieldInfo | None:
    """The field that the last key of `path` names."""
    owner, name = _find_model(model, node, path)
    return None if owner is None else owner.model_fields[name]


def doc_at(model: type[BaseModel], node: Node, path: Sequence[Key]) -> str:
    """The meaning of the last key of `path`; empty where the models do not say."""
    owner, name = _find_model(model, node, path)
    return "" if owner is None else field_doc(owner, name)


def _find_model(model: type[BaseModel], node: Node, path: Sequence[Key]) -> tuple[type[BaseModel] | None, str]:
    """The model that has the field which the last key of `path` names, and the field's name."""
    for found in _types_at(model, node, path[:-1]) if path and isinstance(path[-1], str) else ():
        name = _field_name(found, path[-1])
        if name is not None:
            return found, name
    return None, ""


def _types_at(annotation: Any, node: Node | None, path: Sequence[Key]) -> list[Any]:
    """Possible types of the value at `path` below an annotation."""
    arms = _list_arms(annotation, node)
    if not path:
        return arms
    key, rest = path[0], path[1:]
    child = node.get(key) if node is not None else None
    below = [annotation for arm in arms for annotation in _annotations_below(arm, key)]
    return [found for annotation in below for found in _types_at(annotation, child, rest)]


def _annotations_below(arm: Any, key: Key) -> list[Any]:
    if isinstance(key, int):
        return [item for item in get_args(arm) if item is not ...]
    name = _field_name(arm, key)
    return [] if name is None else [arm.model_fields[name].annotation]


def meant_kind(model: type[BaseModel], node: Node, path: Sequence[Key], name: str) -> str | None:
    """The kind that a name stands for where one is chosen: itself, or the known one that is meant; None elsewhere."""
    bases = [base for found in _types_at(model, node, path) for base in _kind_bases(found)]
    try:
        return name if bases and bases[-1].registry().get(name) else None
    except UnknownKind as fault:
        return fault.meant


def _kind_bases(found: Any) -> list[type[Kind]]:
    """The bases of kinds that a class derives from or is, the most special first."""
    return found.bases() if inspect.isclass(found) and issubclass(found, Kind) else []


def _field_name(arm: Any, key: Key) -> str | None:
    """The name of the field that a key is read into."""
    if not (inspect.isclass(arm) and issubclass(arm, BaseModel)):
        return None
    return next((name for name, info in arm.model_fields.items() if key == (info.alias or name)), None)


def _list_arms(annotation: Any, node: Node | None) -> list[Any]:
    """The annotation itself, the arms of a union, or the kind that the value names."""
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    if get_origin(annotation) in (Union, UnionType):
        return [arm for option in get_args(annotation) for arm in _list_arms(option, node)]
    if node is None or annotation not in _kind_bases(annotation):
        return [annotation]
    name = node.get(annotation.chosen_by)
    try:
        return [annotation] if name is None else _list_arms(annotation.registry().get(str(name.value)), node)
    except UnknownKind:
        return [annotation]
