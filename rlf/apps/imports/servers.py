"""MCP servers as others write them: commands, `mcpServers`, and the declarations of their tools."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlf.apps.imports.found import Json
from rlf.core.errors import RlfError
from rlf.tools.mcp.listing import ToolServer
from rlf.tools.mcp.server import Entry

SERVERS = "mcpServers"

_READ_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
_SCRIPTS = {".py": "python", ".js": "node", ".mjs": "node", ".sh": "sh"}
"""Programs that start scripts, by their suffixes."""


def command_words(command: str) -> list[str]:
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


def is_program(path: Path) -> bool:
    """Whether a file is to be started rather than read. Raises RlfError for a script that cannot be."""
    if path.suffix in _READ_SUFFIXES:
        return False
    if not os.access(path, os.X_OK) and path.suffix in _SCRIPTS:
        raise RlfError(
            f"{path}: cannot be started. Write the command that starts it, e.g. '{_SCRIPTS[path.suffix]} {path}'."
        )
    return os.access(path, os.X_OK)


def names_servers(item: Any) -> bool:
    """Whether a value is `{'mcpServers': {NAME: {...}}}`, as far as its servers' settings can be looked at."""
    servers = item.get(SERVERS) if isinstance(item, dict) else None
    return isinstance(servers, dict) and all(
        isinstance(name, str) and isinstance(server, dict) and all(isinstance(key, str) for key in server)
        for name, server in servers.items()
    )


def root_of(item: Json, path: Path) -> Path:
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


def validate_server(name: str, value: Json, folder: Path) -> ToolServer:
    """The item of a server. Raises RlfError for settings that no server can have."""
    try:
        return ToolServer.model_validate(value, context={"folder": folder})
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join([name, *map(str, fault["loc"][1:])])
        raise RlfError(f"mcpServers.{where}: {fault['msg']}. Fix the server's settings.") from error


def in_its_folder(value: Json, folder: Path) -> Json:
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


def as_file_says(server: Json, entry: ToolServer, folder: Path) -> Json:
    """The server as a file in `folder` says it: what it starts and where from there, all else as it was written."""
    command, settings = entry.mcp.command, dict(server)
    if command is not None and command != server["command"]:
        settings["command"] = as_program(_relative_path(folder, command))
    if entry.mcp.cwd is not None:
        settings["cwd"] = _relative_path(folder, entry.mcp.cwd)
    return settings


def as_program(path: str) -> str:
    """A path that no command line takes for the name of a program on PATH."""
    return path if "/" in path else f"./{path}"


def _relative_path(folder: Path, path: str) -> str:
    return Path(os.path.relpath(path, folder.absolute())).as_posix()


def declare_tool(server: ToolServer, entry: Entry, settings: Json) -> Json:
    """The declaration of a server's tool."""
    what = {"resource": entry.resource} if entry.resource else {"tool": entry.name}
    about = {"name": server.name_of(entry), "description": entry.description, "inputSchema": dict(entry.input_schema)}
    return {**about, "target": {"kind": "mcp", "server": settings, **what}}
