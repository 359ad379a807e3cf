"""Facts of the models about the key at a path: the keys they know, a field's default. For messages only."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlf.core import UnknownKind
from rlf.core.kinds import Kind
from rlf.spec.meaning.facts import field_doc
from rlf.spec.reading.nodes import Key, Node


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
