"""Items of `tools:` that name MCP servers, as the declarations of the tools that the servers list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jsonschema_rs
from pydantic import ValidationError

from rlf.core import Fault, RlfError, nearest
from rlf.core.readings import compile_schema
from rlf.spec.aliases import SERVERS
from rlf.spec.faults import faults_of
from rlf.spec.nodes import UNREADABLE, Node, plain, wrap
from rlf.tools.mcp.listing import ToolServer, listing_faults, listing_of
from rlf.tools.mcp.server import Entry, Listing, McpServer

_DRAFT = re.compile(r"draft-0\d|2019-09")
_SIGNS = {
    "draft-04": re.compile(r'"exclusive(Minimum|Maximum)": (true|false)'),
    "draft-07": re.compile(r'"items": \[|"(additionalItems|dependencies)": '),  # a tuple, which has another key now
}
_OF_EVERY_TOOL = ("limits", "idempotent", "cache", "hidden")


def declare_tools(item: Node, faults: list[Fault]) -> list[Node]:
    """One declaration for each tool that is taken; where something is wrong, one that cannot be read."""
    found: list[Fault] = []
    try:
        server = ToolServer.model_validate(plain(item), context={"folder": item.folder})
        found = listing_faults(server.mcp, partial(_find_listed_faults, item, server))
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


def resolve_server(server: Node) -> Node:
    """An MCP server with its program, folder and files as seen from the file that says it."""
    try:
        found = McpServer.model_validate(plain(server), context={"folder": server.folder})
    except ValidationError:  # reported with its place when the whole spec is read
        return server
    return expand_server(server, found)


def expand_server(node: Node, server: McpServer) -> Node:
    """A server as it is written, with the places of its program, folder and files."""
    settings = server.model_dump(mode="json", include={"command", "cwd"})
    changed = {
        key: replace(child, value=settings[key]) for key, child in node.mapping.items() if settings.get(key) is not None
    }
    args = node.get("args")
    if args is not None:
        items = [replace(child, value=value) for child, value in zip(args.items, server.args, strict=True)]
        changed["args"] = replace(args, value=items)
    return replace(node, value={**node.mapping, **changed})


_ELSEWHERE = frozenset(
    {"alwaysAllow", "autoApprove", "description", "disabled", "icon", "isActive", "name", "sse_read_timeout", "timeout"}
)
"""Keys of Claude, Cursor, Cline, Qwen-Agent and RL-Factory that say nothing about how a server is reached."""


def each_server(item: Node) -> Iterator[Node]:
    """An item with `mcpServers` as one with `mcp` for every server that is not disabled."""
    rest = {key: child for key, child in item.mapping.items() if key != SERVERS}
    for server in item.mapping[SERVERS].mapping.values():
        if not is_disabled(server):
            settings = {key: child for key, child in server.mapping.items() if key not in _ELSEWHERE}
            yield replace(item, value={**rest, "mcp": replace(server, value=settings) if server.mapping else server})


def is_disabled(server: Node) -> bool:
    """Whether a server is written down and not used."""
    disabled = server.get("disabled")
    return disabled is not None and disabled.value is True
