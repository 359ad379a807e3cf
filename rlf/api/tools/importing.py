"""Tool files from what others declare: MCP servers, OpenAPI, OpenAI functions, RL-Factory's configs, Python modules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlf.core.errors import Fault, Place, RlfError, SpecError
from rlf.spec.reading.interpolation import interpolate
from rlf.spec.reading.mcp_json import SERVERS, each_server, is_disabled, with_variables
from rlf.spec.reading.nodes import Node, plain, walk, wrap
from rlf.spec.reading.reader import read_file
from rlf.tools.imports.documents import find_file, from_openai, from_openapi
from rlf.tools.imports.found import FromEnvironment, Imported, escape_all_but_variables, map_texts, refuse_references
from rlf.tools.imports.python import read_module
from rlf.tools.imports.secrets import Secrets
from rlf.tools.imports.servers import (
    as_file_says,
    as_program,
    declare_tool,
    in_its_folder,
    is_program,
    names_servers,
    root_of,
    split_command,
    validate_server,
)
from rlf.tools.mcp.listing import fresh_listing

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What to import."""

    source: str
    folder: Path
    """Where the files go: paths in them start from there."""
    target: str | None = None
    """Of OpenAI's functions: where calls go."""
    url: str | None = None
    """Of OpenAPI: where the service is."""


def read_source(kind: str, request: ImportRequest) -> Imported:
    """The tools of a source. Raises RlfError for one that cannot be read, and for options of another kind."""
    for option, owner in (("target", "openai"), ("url", "openapi")):
        if getattr(request, option) is not None and kind != owner:
            raise RlfError(f"--{option} belongs to {owner}; {kind} does not take it. Remove it.")
    return IMPORTERS[kind](request)


def from_mcp(source: str, folder: Path) -> Imported:
    """The tools of live servers.

    Args:
        source: a url, a file with `mcpServers`, or a command with its arguments.
    """
    if source.startswith(("http://", "https://")):
        return _from_servers(_make_item({"mcp": {"url": source}}, Path.cwd()), folder)
    path = Path(source)
    if path.is_file() and not is_program(path):
        return _from_servers(_read_servers(path), folder)
    command, *arguments = [as_program(source)] if path.is_file() else split_command(source)
    return _from_servers(_make_item({"mcp": {"command": command, "args": arguments}}, Path.cwd()), folder)


def from_rl_factory(source: str, folder: Path) -> Imported:
    """The tools of the servers in an RL-Factory config, a Python literal: `[{'mcpServers': {NAME: {...}}}]`."""
    path = find_file(source)
    try:
        value = ast.literal_eval(path.read_text(encoding="utf-8"))
    except (ValueError, SyntaxError) as error:
        raise RlfError(f"{source}: no Python literal: {error}. Expected [{{'mcpServers': {{...}}}}].") from error
    items = value if isinstance(value, list) else [value]
    if not all(map(names_servers, items)):
        raise RlfError(f"{source}: expected [{{'mcpServers': {{NAME: {{'command': ...}}}}}}].")
    found = Imported()
    for item in items:
        one = _from_servers(_make_item(item, root_of(item, path)), folder, has_variables=False)
        found.tools += one.tools
        found.notes += one.notes
    return found


def _make_item(value: Json, folder: Path) -> Node:
    place = Place("")
    return wrap(value, Node(None, place, place, (), folder))


def _read_servers(path: Path) -> Node:
    faults: list[Fault] = []
    found = read_file(path.absolute(), None, faults)
    if found is None:
        raise SpecError(faults)
    if not names_servers(plain(found[0])):
        raise RlfError(f'{path}: has no `mcpServers`. Write {{"mcpServers": {{NAME: {{"command": ...}}}}}}.')
    return found[0]


def _from_servers(item: Node, folder: Path, *, has_variables: bool = True) -> Imported:
    """The tools of an item's servers.

    Args:
        has_variables: whether `${NAME}` in the item stands for a variable, as in `mcpServers` of JSON files.
    """
    _check_addresses(item)
    written = with_variables(item) if has_variables else item
    filled = _filled_in(written) if has_variables else item
    found = Imported()
    for name, as_written, one in zip(_list_names(written), _list_servers(written), _list_servers(filled), strict=True):
        value = in_its_folder(plain(one), item.folder)
        server = validate_server(name, value, item.folder)
        server_settings = as_file_says(plain(as_written)["mcp"], server, folder)
        secrets = Secrets(name, has_variables)
        server_settings = secrets.without(
            map_texts(server_settings, FromEnvironment) if has_variables else server_settings
        )
        if secrets.moved:
            found.notes.append(
                f"{name}: secrets are not copied; the file reads them from these variables: {', '.join(secrets.moved)}"
            )
        for entry in fresh_listing(server.mcp).entries:
            found.tools.append(declare_tool(server, entry, server_settings))
    return found


def _check_addresses(item: Node) -> None:
    for path, node in walk(item):
        if path and path[-1] == "url" and isinstance(node.value, str):
            refuse_references(node.value)


def _filled_in(item: Node) -> Node:
    """Servers with their variables filled in; of all references, `${oc.env:NAME}` alone stands for anything."""
    faults: list[Fault] = []
    filled = interpolate(_with_texts(item, escape_all_but_variables), faults)
    if faults:
        raise SpecError(faults)
    return filled


def _with_texts(node: Node, change: Callable[[str], str]) -> Node:
    if isinstance(node.value, dict):
        return replace(node, value={key: _with_texts(child, change) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return replace(node, value=[_with_texts(child, change) for child in node.value])
    return replace(node, value=change(node.value)) if isinstance(node.value, str) else node


def _list_servers(item: Node) -> list[Node]:
    return list(each_server(item)) if SERVERS in item.mapping else [item]


def _list_names(item: Node) -> list[str]:
    """The names of the servers that `_list_servers` gives."""
    if SERVERS not in item.mapping:
        return ["mcp"]
    servers = item.mapping[SERVERS].mapping
    return [name for name, server in servers.items() if not is_disabled(server)]


IMPORTERS: Mapping[str, Callable[[ImportRequest], Imported]] = {
    "mcp": lambda request: from_mcp(request.source, request.folder),
    "openapi": lambda request: from_openapi(request.source, request.url),
    "openai": lambda request: from_openai(request.source, request.target),
    "rl-factory": lambda request: from_rl_factory(request.source, request.folder),
    "python": lambda request: read_module(request.source, request.folder),
}
"""Every kind of source by its name on the command line."""
