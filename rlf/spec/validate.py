"""From a tree of nodes to the models, with every error of theirs as a fault at its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args

import jsonschema_rs
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlf.core import Fault, RlfError, nearest
from rlf.core.readings import compile_schema
from rlf.core.registry import close_names
from rlf.rewards.term import Term
from rlf.spec.aliases import NEAR_MISSES, SERVERS, aliased, each_server, foreign_names, names_below, unknown_key
from rlf.spec.facts import doc_at, field_at, known_keys, known_kinds, meant_kind
from rlf.spec.layers import ITEM_LISTS
from rlf.spec.models import RunSpec
from rlf.spec.nodes import (
    UNREADABLE,
    Key,
    KeyPath,
    Node,
    boolean_for_number,
    dotted,
    find,
    missing,
    own_words,
    plain,
    show,
    unknown,
    walk,
    wrap,
    wrong_value,
)
from rlf.spec.paths import expand_server
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.mcp.listing import Entry, Listing, ToolServer, find_faults, listing_of

M = TypeVar("M", bound=BaseModel)

_MAX_ROUNDS = 5
"""Times that a spec is tried with what was wrong in it left out."""


def validate_spec(root: Node, faults: list[Fault]) -> RunSpec | None:
    """The spec; None, with faults added, when anything in it is wrong."""
    values, is_whole = plain(root), True
    faults += _booleans_for_numbers(RunSpec, root)
    for key, models in _validate_items(root, faults):
        is_whole &= None not in models
        if isinstance(root.mapping[key].value, list):
            values[key] = [found for found in models if found is not None]
    try:
        spec = RunSpec.model_validate(values)
    except ValidationError as error:
        faults += faults_of(RunSpec, root, error.errors())
        return None
    return spec if is_whole else None


def _validate_items(root: Node, faults: list[Fault]) -> Iterator[tuple[str, list[BaseModel | None]]]:
    """The models of the items of `tools` and `rewards`, where a spec has them; None for one that is wrong."""
    models: dict[str, type[BaseModel]] = {"tools": ToolDeclaration, "rewards": Term}
    for key, model in models.items():
        if (items := root.get(key)) is not None:
            yield key, [validate_item(model, key, item, faults) for item in items.items]


class Part(NamedTuple):
    """The part of a broken spec that stands by itself."""

    spec: RunSpec
    """Without broken tools and rewards; stand-ins and defaults where other keys are wrong or missing."""
    kept: dict[str, tuple[int, ...]]
    """By `tools` and `rewards`, where its items stand in the list as it is written."""
    broken: frozenset[KeyPath]
    """Keys of which it does not hold what was meant; `tools` or `rewards` where an item is left out."""


def valid_part(root: Node, faulty: Iterable[KeyPath]) -> Part | None:
    """The part of a broken spec that can be looked at further; None where no part is valid.

    Args:
        faulty: keys that have faults of their own, whatever their values are.
    """
    values, kept = plain(root), dict[str, tuple[int, ...]]()
    broken = set(faulty)
    for key, models in _validate_items(root, []):
        kept[key] = tuple(place for place, found in enumerate(models) if found is not None)
        values[key] = [found for found in models if found is not None]
        if None in models:
            broken.add((key,))
    if not values.get("rewards"):
        broken.add(("rewards",))
        values["rewards"] = [_LEAST_TERM]
    for _ in range(_MAX_ROUNDS):
        try:
            spec = RunSpec.model_validate(values)
        except ValidationError as error:
            for details in error.errors():
                broken.update(_meant_keys(root, details))
                if removed := _remove_value(values, details["loc"]):
                    broken.add(removed)
                elif not _fill_stand_in(values, details["loc"]):
                    return None
        else:
            some = spec if kept.get("rewards") else spec.model_copy(update={"rewards": ()})
            return Part(some, kept, frozenset(broken))
    return None


_LEAST_TERM = {"kind": "rule", "name": "any", "rule": "exact_match"}
_LEAST: dict[str, Any] = {
    "name": "any",
    "model": {"path": "builtin:tiny"},
    "data": {"train": {"path": "builtin:encyclopedia/train"}},
    "train": {"algorithm": {"kind": "grpo"}},
}
"""Stands in for the keys that every spec has, where they are missing or wrong; no check reads it."""


def _meant_keys(root: Node, error: ErrorDetails) -> list[KeyPath]:
    """The keys that an error is about: of a key that nothing knows, those that it may be meant for."""
    path = error["loc"]
    if error["type"] != "extra_forbidden":
        return [path]
    *above, key = path
    own = [(*above, known) for known in close_names(str(key), known_keys(RunSpec, root, above))]
    others = close_names(str(key), names_below(above))
    return own + [target for name in others for target in aliased([*map(str, above), name])]


def _remove_value(values: Any, path: KeyPath) -> KeyPath:
    """Takes the value at a path out of its mapping, or where it is missing the optional mapping around it.

    Returns the path of what was taken out; an empty one where nothing can be.
    """
    holder, place, depth = None, None, 0
    for key in path:
        if not isinstance(values, dict) or key not in values:
            break
        holder, place, values, depth = values, key, values[key], depth + 1
    if holder is None or (depth < len(path) and _value_at(_LEAST, path) is not None):
        return ()
    del holder[place]
    return path[:depth]


def _fill_stand_in(values: Any, path: KeyPath) -> bool:
    """Puts the stand-in of a key that every spec has."""
    least = _value_at(_LEAST, path)
    for key in path[:-1]:
        values = values.get(key)
        if not isinstance(values, dict):
            return False
    if least is not None:
        values[path[-1]] = least
    return least is not None


def _value_at(values: Any, path: KeyPath) -> Any:
    """The value at a path of nested mappings; None where there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def restrict(model: M, keys: Iterable[KeyPath]) -> M:
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
            copy.__dict__[name] = restrict(value, paths)
    return copy


def _booleans_for_numbers(model: type[BaseModel], root: Node) -> Iterator[Fault]:
    """Pydantic takes `true` for 1; who writes it means something else."""
    for path, node in walk(root):
        if isinstance(node.value, bool) and path:
            field = field_at(model, root, path)
            arms = (field.annotation, *get_args(field.annotation)) if field is not None else ()
            if bool not in arms and (int in arms or float in arms):
                number = "a whole number" if int in arms else "a number"
                assert field is not None, f"no field for {path}"
                yield node.fault(boolean_for_number(show(node.value), str(path[-1]), field, number))


def validate_item(model: type[M], key: str, item: Node, faults: list[Fault]) -> M | None:
    """A tool or a reward: on its own, since its paths start from its own file's folder."""
    if item.value is UNREADABLE:
        return None
    if not isinstance(item.value, dict):
        role = ITEM_LISTS[key]
        message = f"got {show(plain(item))}; expected a path to a {role} file, or a mapping. "
        faults.append(item.fault(f"{message}Write e.g. `../{role}_specs/name.yaml`."))
        return None
    faults += _booleans_for_numbers(model, item)
    try:
        return model.model_validate(plain(item), context={"folder": item.folder})
    except ValidationError as error:
        faults += faults_of(model, item, error.errors())
        return None


def faults_of(model: type[BaseModel], root: Node, errors: Sequence[ErrorDetails]) -> list[Fault]:
    """Pydantic's errors about the values of a tree as faults in its files.

    A union's errors, one for each arm, are about one value and become one fault.
    """
    groups: dict[tuple[KeyPath, bool], list[ErrorDetails]] = {}
    misspelt = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    for error in errors:
        if _seems_short(root, error) or (error["type"] == "missing" and _is_misspelt(error["loc"], misspelt)):
            continue
        about_key = error["type"] in ("missing", "extra_forbidden")
        path = error["loc"] if about_key else error["loc"][: find(root, error["loc"])[1]]
        groups.setdefault((path, about_key), []).append(error)
    return [_make_fault(model, root, path, group) for (path, _), group in groups.items()]


def _seems_short(root: Node, error: ErrorDetails) -> bool:
    """Whether a list is long enough as it is written, and was counted without its broken items."""
    node, depth = find(root, error["loc"])
    written = error["type"] == "too_short" and depth == len(error["loc"])
    return written and len(node.items) >= error["ctx"]["min_length"]


def _is_misspelt(missing_at: KeyPath, unknown_at: Sequence[KeyPath]) -> bool:
    """Whether a missing key is there under a name that is nearly its own: that is one fault, not two."""
    beside = [path for path in unknown_at if path[:-1] == missing_at[:-1]]
    return any(nearest(str(path[-1]), [str(missing_at[-1])]) for path in beside)


def _make_fault(model: type[BaseModel], root: Node, path: KeyPath, errors: Sequence[ErrorDetails]) -> Fault:
    node, depth = find(root, path)
    key = str(path[-1]) if path else ""
    if errors[0]["type"] == "missing":
        return _missing_fault(model, root, path)
    if errors[0]["type"] == "extra_forbidden":
        known = known_keys(model, root, path[:-1])
        if model is not RunSpec:
            return node.fault(unknown(key, known), at_key=True)
        sections = _in_sections(root, path)
        if len(path) == 1 and not sections and key not in NEAR_MISSES and (meant := foreign_names(key)):
            message = f"unknown key {key!r}: it is called {' or '.join(meant)} here."
            return node.fault(message + _written_there(root, path, meant), at_key=True)
        return node.fault(unknown_key(path, [*known, *sections]) + _written_there(root, path, sections), at_key=True)
    assert depth == len(path), f"an error about {path}, which the tree does not hold"
    if errors[0]["type"] == "unknown_kind":
        meant = errors[0]["ctx"]["meant"]
        return node.fault(f"{own_words(errors[0])} Write {meant or 'one of these'}.")
    return node.fault(wrong_value(_show_value(root, path), errors, key, field_at(model, root, path)))


def _in_sections(root: Node, path: KeyPath) -> list[str]:
    """A key at the top by its whole path, where a section of the spec has one of that name."""
    if len(path) > 1:
        return []
    return [f"{name}.{path[0]}" for name in RunSpec.model_fields if path[0] in known_keys(RunSpec, root, (name,))]


def _written_there(root: Node, path: KeyPath, sections: Sequence[str]) -> str:
    """Suggests the whole key where one at the top is meant for a section, with the kind that its value stands for."""
    node, _ = find(root, path)
    if len(sections) != 1 or not isinstance(node.value, str | int | float) or node.written is not None:
        return ""
    section = (*sections[0].split("."),)
    kind = meant_kind(RunSpec, root, section, str(node.value))
    equals = "=" if str(node.key_place).startswith("override") else ": "
    return f" Write `{sections[0]}{equals}{kind or node.value}`."


def _missing_fault(model: type[BaseModel], root: Node, path: KeyPath) -> Fault:
    node, _ = find(root, path)
    if isinstance(path[-1], int):
        return node.fault(f"got a list of {len(node.items)}; expected at least {path[-1] + 1} items. Add the others.")
    kinds = known_kinds(model, root, path) or known_kinds(model, root, (*path, "kind"))
    where: tuple[Key, ...] = (*node.path, path[-1])
    return Fault(
        node.key_place if node.path else node.place,
        dotted(where),
        missing(path[-1], doc_at(model, root, path), kinds, _value_at(_LEAST, (*path, "kind"))),
    )


def _show_value(root: Node, path: KeyPath) -> str:
    """The value at a path as a message shows it; one that was filled in is shown as written, since it may be secret."""
    for length in range(len(path) + 1):
        node, _ = find(root, path[:length])
        if node.written is not None:
            return f"the value of {node.written}"
    return show(plain(find(root, path)[0]))


# Items of `tools:` that name MCP servers, as the declarations of the tools that the servers list.

_DRAFT = re.compile(r"draft-0\d|2019-09")
_SIGNS = {
    "draft-04": re.compile(r'"exclusive(Minimum|Maximum)": (true|false)'),
    "draft-07": re.compile(r'"items": \[|"(additionalItems|dependencies)": '),  # a tuple, which has another key now
}
_OF_EVERY_TOOL = ("limits", "idempotent", "cache", "hidden")


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
    if "mcp" in item.mapping:
        return _declare_tools(item, faults)
    servers = item.mapping[SERVERS]
    if not servers.mapping:
        faults.append(servers.fault("got no server; expected a mapping of names to servers. Write `NAME: {...}`."))
        return [replace(item, value=UNREADABLE)]
    return [tool for one in each_server(item) for tool in _declare_tools(one, faults)]


def _declare_tools(item: Node, faults: list[Fault]) -> list[Node]:
    """One declaration for each tool that is taken; where something is wrong, one that cannot be read."""
    found: list[Fault] = []
    try:
        server = ToolServer.model_validate(plain(item), context={"folder": item.folder})
        found = find_faults(server.mcp, partial(_find_listed_faults, item, server))
    except ValidationError as error:
        found = faults_of(ToolServer, item, error.errors())
    except RlfError as error:
        found = [item.mapping["mcp"].fault(str(error))]
    if found:
        faults += found
        return [replace(item, value=UNREADABLE)]
    return [_declare_entry(item, server, entry) for entry in server.chosen(listing_of(server.mcp))]


def _find_listed_faults(item: Node, server: ToolServer, listing: Listing) -> list[Fault]:
    return _find_unknown_tools(item, server, listing) or _find_unreadable_schemas(item, server, listing)


def _find_unknown_tools(item: Node, server: ToolServer, listing: Listing) -> list[Fault]:
    """Names under `include` and `exclude` that the server does not have."""
    known = [entry.name for entry in listing.entries if server.resources or entry.resource is None]
    return [
        name.fault(
            f"the server has no tool {name.value!r}{nearest(str(name.value), known)} "
            f"(known: {', '.join(known)}). Write one of these."
        )
        for key in ("include", "exclude")
        for name in item.mapping.get(key, replace(item, value=None)).items
        if name.value not in known
    ]


def _find_unreadable_schemas(item: Node, server: ToolServer, listing: Listing) -> list[Fault]:
    """Tools whose inputSchema is none, each with the way to do without it."""
    found = []
    for entry in server.chosen(listing):
        try:
            if entry.input_schema.get("type") == "object":
                compile_schema(entry.input_schema)
                continue
            reason = "its `type` is not `object`"
        except jsonschema_rs.ValidationError as fault:
            reason = (
                ".".join(map(str, fault.instance_path)) + f": {fault.message}" if fault.instance_path else fault.message
            )
        except ValueError as fault:
            reason = str(fault)
        draft = _older_draft(entry.input_schema)
        what = f"not JSON Schema 2020-12, but {draft}" if draft else "not JSON Schema 2020-12"
        left_out = json.dumps([*server.exclude, entry.name], ensure_ascii=False)
        found.append(
            item.mapping["mcp"].fault(
                f"the server's tool {entry.name!r} has an inputSchema that is {what}: {reason}. "
                f"Write `exclude: {left_out}` beside `mcp` to do without it, or correct it in the server."
            )
        )
    return found


def _older_draft(schema: Mapping[str, Any]) -> str:
    """The draft of JSON Schema before 2020-12 that a schema is written in: as it says, or by what it has of one."""
    named = _DRAFT.search(str(schema.get("$schema")))
    if named is not None:
        return named[0]
    text = json.dumps(schema)
    return next((draft for draft, pattern in _SIGNS.items() if pattern.search(text)), "")


def _declare_entry(item: Node, server: ToolServer, entry: Entry) -> Node:
    settings = {"kind": "mcp", "resource": entry.resource} if entry.resource else {"kind": "mcp", "tool": entry.name}
    target = {key: wrap(value, item) for key, value in {**settings, "digest": entry.digest}.items()}
    about = {"name": server.name_of(entry), "description": entry.description, "inputSchema": dict(entry.input_schema)}
    shared = {key: item.mapping[key] for key in _OF_EVERY_TOOL if key in item.mapping}
    of_target = {"target": replace(item, value={**target, "server": expand_server(item.mapping["mcp"], server.mcp)})}
    return replace(item, value={**{key: wrap(value, item) for key, value in about.items()}, **of_target, **shared})
