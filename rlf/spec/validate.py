"""From a tree of nodes to the models. What is wrong is put into words by `rlf.spec.faults`, loaded only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlf.core import Fault
from rlf.rewards.term import Term
from rlf.spec.aliases import SERVERS
from rlf.spec.layers import ITEM_LISTS
from rlf.spec.models import RunSpec
from rlf.spec.nodes import UNREADABLE, Key, KeyPath, Node, plain, show, walk
from rlf.tools.declaration import ToolDeclaration

M = TypeVar("M", bound=BaseModel)


def validate_spec(root: Node, faults: list[Fault]) -> RunSpec | None:
    """The spec; None, with faults added, when anything in it is wrong."""
    values, is_whole = plain(root), True
    for key, models in validate_items(root, faults):
        is_whole &= None not in models
        if isinstance(root.mapping[key].value, list):
            values[key] = [found for found in models if found is not None]
    spec = _validate(RunSpec, values, root, faults)
    return spec if is_whole else None


def validate_items(root: Node, faults: list[Fault]) -> Iterator[tuple[str, list[BaseModel | None]]]:
    """The models of the items of `tools` and `rewards`, where a spec has them; None for one that is wrong."""
    models: dict[str, type[BaseModel]] = {"tools": ToolDeclaration, "rewards": Term}
    for key, model in models.items():
        if (items := root.get(key)) is not None:
            yield key, [validate_item(model, key, item, faults) for item in items.items]


def restrict_fields(model: M, keys: Iterable[KeyPath]) -> M:
    """A copy of a model that has nothing but the fields at some paths; reading another one raises AttributeError."""
    below: dict[Key, list[KeyPath]] = {}
    for key in keys:
        below.setdefault(key[0], []).append(key[1:])
    copy = model.model_copy()
    for name, value in model.__dict__.items():
        paths = below.get(name)
        if paths is None:
            del copy.__dict__[name]
        elif isinstance(value, BaseModel) and () not in paths:
            copy.__dict__[name] = restrict_fields(value, paths)
    return copy


def _validate(model: type[M], values: Any, root: Node, faults: list[Fault], **context: Any) -> M | None:
    """The model of the values of a tree; None, with faults added, where pydantic refuses them.

    Pydantic takes `true` for 1 and means no harm; who writes it means something else.
    """
    try:
        found = model.model_validate(values, context=context)
    except ValidationError as error:
        from rlf.spec.faults import faults_of, find_booleans

        # a boolean's own fault comes first: of two at one place the first is shown, and `false` is also too small
        faults += [*find_booleans(model, root), *faults_of(model, root, error.errors())]
        return None
    if any(isinstance(node.value, bool) and not _is_boolean(found, path) for path, node in walk(root)):
        from rlf.spec.faults import find_booleans

        faults += find_booleans(model, root)
    return found


def _is_boolean(value: Any, path: KeyPath) -> bool:
    """Whether a validated value at a path is `true` or `false`; not so either where a key is called otherwise."""
    for key in path:
        if isinstance(value, BaseModel):
            value = getattr(value, str(key), None)
        elif isinstance(value, Mapping):
            value = value.get(key)
        else:
            value = (
                value[key] if isinstance(value, list | tuple) and isinstance(key, int) and key < len(value) else None
            )
    return isinstance(value, bool)


def validate_item(model: type[M], key: str, item: Node, faults: list[Fault]) -> M | None:
    """A tool or a reward: on its own, since its paths start from its own file's folder."""
    if item.value is UNREADABLE:
        return None
    if not isinstance(item.value, dict):
        role = ITEM_LISTS[key]
        message = f"got {show(plain(item))}; expected a path to a {role} file, or a mapping. "
        faults.append(item.fault(f"{message}Write e.g. `../{role}_specs/name.yaml`."))
        return None
    return _validate(model, plain(item), item, faults, folder=item.folder)


def names_server(item: Node) -> bool:
    """Whether an item stands for the tools of servers."""
    return SERVERS in item.mapping or "mcp" in item.mapping


def expand_servers(root: Node, faults: list[Fault]) -> Node:
    """The mapping with every server in its `tools` replaced by the server's tools: a spec, or an agent's target."""
    tools = root.get("tools")
    if tools is None or not tools.items:
        return root
    items = [tool for item in tools.items for tool in tools_of(item, faults)]
    return replace(root, value={**root.mapping, "tools": replace(tools, value=items)})


def tools_of(item: Node, faults: list[Fault]) -> Sequence[Node]:
    """The declarations of an item: itself, or the tools of the servers that it names."""
    if not names_server(item):
        target = item.get("target")
        if target is None or target.get("tools") is None:
            return [item]
        return [replace(item, value={**item.mapping, "target": expand_servers(target, faults)})]
    from rlf.spec.servers import declare_tools, each_server

    if "mcp" in item.mapping:
        return declare_tools(item, faults)
    servers = item.mapping[SERVERS]
    if not servers.mapping:
        faults.append(servers.fault("got no server; expected a mapping of names to servers. Write `NAME: {...}`."))
        return [replace(item, value=UNREADABLE)]
    return [tool for one in each_server(item) for tool in declare_tools(one, faults)]
