"""Tool files from what others declare: MCP servers, OpenAPI, OpenAI functions, RL-Factory's configs, Python modules."""

from __future__ import annotations

import ast
import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlf.core.errors import Fault, Place, RlfError, SpecError
from rlf.core.yaml_text import load_document
from rlf.spec.reading.interpolation import interpolate
from rlf.spec.reading.mcp_json import SERVERS, each_server, is_disabled, with_variables
from rlf.spec.reading.nodes import Node, plain, walk, wrap
from rlf.spec.reading.reader import read_file
from rlf.tools.imports.found import FromEnvironment, Imported, escape_all_but_variables, refuse_references
from rlf.tools.imports.openai import read_functions
from rlf.tools.imports.openapi import read_operations
from rlf.tools.imports.python import read_module
from rlf.tools.imports.secrets import Secrets
from rlf.tools.mcp.entry import ToolServer
from rlf.tools.mcp.listing import fresh_listing
from rlf.tools.mcp.offer import Entry

Json = dict[str, Any]

_MAX_BYTES = 20_000_000
_TIMEOUT_S = 30.0
_READ_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
_SCRIPTS = {".py": "python", ".js": "node", ".mjs": "node", ".sh": "sh"}
"""What starts a script, by its suffix."""


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


@dataclass(frozen=True, slots=True)
class Importer:
    """A kind of source."""

    read: Callable[[ImportRequest], Imported]
    options: frozenset[str] = frozenset()
    """Fields of a request that mean something to it, beside those that all have."""


def read_source(kind: str, request: ImportRequest) -> Imported:
    """What a source declares. Raises RlfError for one that cannot be read, and for options of another kind."""
    for option in ("target", "url"):
        if getattr(request, option) is not None and option not in IMPORTERS[kind].options:
            owners = ", ".join(name for name, importer in IMPORTERS.items() if option in importer.options)
            raise RlfError(f"--{option} belongs to {owners}; got it with {kind}. Remove it.")
    return IMPORTERS[kind].read(request)


def from_mcp(source: str, folder: Path) -> Imported:
    """The tools of live servers.

    Args:
        source: a url, a file with `mcpServers`, or a command with its arguments.
    """
    if source.startswith(("http://", "https://")):
        return _from_servers(_item({"mcp": {"url": source}}, Path.cwd()), folder)
    path = Path(source)
    if path.is_file() and not _is_program(path):
        return _from_servers(_read(path), folder)
    command, *arguments = [_as_program(source)] if path.is_file() else _words(source)
    return _from_servers(_item({"mcp": {"command": command, "args": arguments}}, Path.cwd()), folder)


def _words(command: str) -> list[str]:
    """A command line's words. Raises RlfError where it has none, or a quote is open."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RlfError(f"{command!r}: no command: {error}. Write it as in a shell, e.g. 'python server.py'.") from error
    if not words:
        raise RlfError(
            "got an empty SOURCE; expected a url, a file with mcpServers, or a command such as 'uvx SERVER'."
        )
    return words


def _is_program(path: Path) -> bool:
    """Whether a file is to be started rather than read. Raises RlfError for a script that cannot be."""
    if path.suffix in _READ_SUFFIXES:
        return False
    if not os.access(path, os.X_OK) and path.suffix in _SCRIPTS:
        raise RlfError(
            f"{path}: cannot be started. Write the command that starts it, e.g. '{_SCRIPTS[path.suffix]} {path}'."
        )
    return os.access(path, os.X_OK)


def from_rl_factory(source: str, folder: Path) -> Imported:
    """The tools of the servers in an RL-Factory config, a Python literal: `[{'mcpServers': {NAME: {...}}}]`."""
    path = _file(source)
    try:
        value = ast.literal_eval(path.read_text(encoding="utf-8"))
    except (ValueError, SyntaxError) as error:
        raise RlfError(f"{source}: no Python literal: {error}. Expected [{{'mcpServers': {{...}}}}].") from error
    items = value if isinstance(value, list) else [value]
    if not all(map(_names_servers, items)):
        raise RlfError(f"{source}: expected [{{'mcpServers': {{NAME: {{'command': ...}}}}}}].")
    found = Imported()
    for item in items:
        one = _from_servers(_item(item, _root_of(item, path)), folder, has_variables=False)
        found.tools += one.tools
        found.notes += one.notes
    return found


def _names_servers(item: Any) -> bool:
    """Whether a value is `{'mcpServers': {NAME: {...}}}`, as far as its servers' settings can be looked at."""
    servers = item.get(SERVERS) if isinstance(item, dict) else None
    return isinstance(servers, dict) and all(
        isinstance(name, str) and isinstance(server, dict) and all(isinstance(key, str) for key in server)
        for name, server in servers.items()
    )


def _root_of(item: Json, path: Path) -> Path:
    """The folder that the servers' files are named from: RL-Factory runs in its repository's root."""
    lists = [server.get("args") for server in item[SERVERS].values()]
    arguments = [argument for one in lists if isinstance(one, list) for argument in one]
    for folder in path.absolute().parents:
        if any(_is_file(folder / str(argument)) for argument in arguments):
            return folder
    return path.absolute().parent


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no path at all: too long, or with a NUL
        return False


def _item(value: Json, folder: Path) -> Node:
    place = Place("")
    return wrap(value, Node(None, place, place, (), folder))


def _read(path: Path) -> Node:
    faults: list[Fault] = []
    found = read_file(path.absolute(), None, faults)
    if found is None:
        raise SpecError(faults)
    if not _names_servers(plain(found[0])):
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
    for name, as_written, one in zip(_names(written), _each(written), _each(filled), strict=True):
        value = _in_its_folder(plain(one), item.folder)
        server = _server(name, value, item.folder)
        said = _said(plain(as_written)["mcp"], server, folder)
        secrets = Secrets(name, has_variables)
        said = secrets.without(_mark_variables(said) if has_variables else said)
        if secrets.moved:
            found.notes.append(f"{name}: secrets are not copied; variables hold them: {', '.join(secrets.moved)}")
        for entry in fresh_listing(server.mcp).entries:
            found.tools.append(_declaration(server, entry, said))
    return found


def _server(name: str, value: Json, folder: Path) -> ToolServer:
    """The item of a server. Raises RlfError for settings that no server can have."""
    try:
        return ToolServer.model_validate(value, context={"folder": folder})
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join([name, *map(str, fault["loc"][1:])])
        raise RlfError(f"mcpServers.{where}: {fault['msg']}. Fix the server's settings.") from error


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


def _each(item: Node) -> list[Node]:
    return list(each_server(item)) if SERVERS in item.mapping else [item]


def _names(item: Node) -> list[str]:
    """The names of the servers that `_each` gives."""
    if SERVERS not in item.mapping:
        return ["mcp"]
    servers = item.mapping[SERVERS].mapping
    return [name for name, server in servers.items() if not is_disabled(server)]


def _in_its_folder(value: Json, folder: Path) -> Json:
    """The item with the folder that its server's arguments are named from, where one of them is a relative path."""
    server = value["mcp"]
    arguments = server.get("args") if isinstance(server.get("args"), list) else []
    if "command" not in server or server.get("cwd") or not any(_is_path(word, folder) for word in arguments):
        return value
    return {**value, "mcp": {**server, "cwd": str(folder)}}


def _is_path(argument: Any, folder: Path) -> bool:
    """Whether an argument, or its value behind `=`, names something in a folder, or looks like a file to be made."""
    path = str(argument).rpartition("=")[2]
    if not path or path.startswith("-") or "://" in path or Path(path).is_absolute():
        return False
    try:
        return Path(path).suffix != "" or (folder / path).exists()
    except (OSError, ValueError):  # no path at all: too long, or with a NUL
        return False


def _said(server: Json, entry: ToolServer, folder: Path) -> Json:
    """The server as a file in `folder` says it: what it starts and where from there, all else as it was written."""
    command, said = entry.mcp.command, dict(server)
    if command is not None and command != server["command"]:
        said["command"] = _as_program(_from(folder, command))
    if entry.mcp.cwd is not None:
        said["cwd"] = _from(folder, entry.mcp.cwd)
    return said


def _as_program(path: str) -> str:
    """A path that no command line takes for the name of a program on PATH."""
    return path if "/" in path else f"./{path}"


def _from(folder: Path, path: str) -> str:
    return Path(os.path.relpath(path, folder.absolute())).as_posix()


def _mark_variables(value: Any) -> Any:
    """A server's settings whose texts the environment fills in."""
    if isinstance(value, dict):
        return {key: _mark_variables(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_mark_variables(child) for child in value]
    return FromEnvironment(value) if isinstance(value, str) else value


def _declaration(server: ToolServer, entry: Entry, said: Json) -> Json:
    what = {"resource": entry.resource} if entry.resource else {"tool": entry.name}
    about = {"name": server.name_of(entry), "description": entry.description, "inputSchema": dict(entry.input_schema)}
    return {**about, "target": {"kind": "mcp", "server": said, **what}}


def from_openapi(source: str, base_url: str | None) -> Imported:
    """The operations of an OpenAPI 3 or Swagger 2 document: a file or a url, JSON or YAML."""
    try:
        document = load_document(_text(source))
    except ValueError as error:
        raise RlfError(f"{source}: neither JSON nor YAML: {error}. Check the address and the file.") from error
    return read_operations(document, base_url=base_url, source=source)


def from_openai(source: str, target: str | None) -> Imported:
    """OpenAI function JSON: one function, a list of them, or a request with `tools`.

    Args:
        target: a module or file with functions of these names, or a url to which `{name}` is posted; they say how
            the functions are described, not where they are.
    """
    if target is None:
        mend = "Give --target functions.py, --target package.module or --target 'http://host/{name}'."
        raise RlfError(f"{source}: OpenAI's functions do not say where calls go. {mend}")
    try:
        value = json.loads(_text(source))
    except (ValueError, RecursionError) as error:
        raise RlfError(f"{source}: not JSON: {error}. Check the file.") from error
    return read_functions(value, target)


def _file(source: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise RlfError(f"{source}: no such file. Check the path.")
    return path


def _text(source: str) -> str:
    """A file's text, or what is at a url."""
    if not source.startswith(("http://", "https://")):
        try:
            return _file(source).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise RlfError(f"{source}: not UTF-8 text: {error}. Save it as UTF-8.") from error
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(source, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise RlfError(
                    f"{source}: larger than {_MAX_BYTES:,} bytes, the most that are read. Import a part of it."
                )
            return data.decode("utf-8-sig")
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise RlfError(f"{source}: cannot be read: {error}. Check the address.") from error


IMPORTERS: Mapping[str, Importer] = {
    "mcp": Importer(lambda request: from_mcp(request.source, request.folder)),
    "openapi": Importer(lambda request: from_openapi(request.source, request.url), frozenset({"url"})),
    "openai": Importer(lambda request: from_openai(request.source, request.target), frozenset({"target"})),
    "rl-factory": Importer(lambda request: from_rl_factory(request.source, request.folder)),
    "python": Importer(lambda request: read_module(request.source, request.folder)),
}
"""Every kind of source by its name on the command line."""
