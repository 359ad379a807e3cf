"""What an MCP server offers, and how a spec knows it without a connection: lists are kept by the server's identity.

A list is read over a connection of its own the first time, and again when the command, its arguments or the files
that they name change. A run compares what it was checked with against the live server (`rlf.tools.kinds.mcp`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.core.errors import RlfError
from rlf.core.foreign import about_to_run
from rlf.core.hashing import hash_json
from rlf.tools.failure import ToolFailure
from rlf.tools.mcp.server import McpServer

if TYPE_CHECKING:
    from mcp import ClientSession

logger = logging.getLogger(__name__)

_MAX_PAGES = 100
_FORMAT = 1
_READ: dict[str, Listing] = {}
"""Lists that this process has read, by the server's identity."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a model can be offered: a tool, or a resource to read."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    resource: str | None = None
    """URI or template of a resource; None for a tool."""

    @property
    def digest(self) -> str:
        """sha256 of what the server says of it."""
        return hash_json(asdict(self))


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything that a server offers, in its order."""

    entries: tuple[Entry, ...]

    def tool(self, name: str) -> Entry | None:
        """The tool of a name."""
        return next((entry for entry in self.entries if entry.resource is None and entry.name == name), None)

    @property
    def tool_names(self) -> list[str]:
        """Names of its tools."""
        return [entry.name for entry in self.entries if entry.resource is None]


async def read_listing(session: ClientSession) -> Listing:
    """Asks for every page of tools and of resources, where the server has some."""
    from rlf.tools.mcp.content import entry_of_resource, entry_of_template, entry_of_tool

    has = session.server_capabilities
    found: list[Entry] = []
    if has is None or has.tools is not None:
        found += map(entry_of_tool, await _pages(session.list_tools, "tools"))
    if has is not None and has.resources is not None:
        found += map(entry_of_resource, await _pages_if_any(session.list_resources, "resources"))
        found += map(entry_of_template, await _pages_if_any(session.list_resource_templates, "resource_templates"))
    return Listing(tuple(found))


async def _pages_if_any(ask: Any, key: str) -> list[Any]:
    """The pages, of a server that has them: one with resources need not list templates, and its tools work without."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND

    try:
        return await _pages(ask, key)
    except MCPError as error:
        if error.code == CONNECTION_CLOSED:
            raise
        if error.code != METHOD_NOT_FOUND:
            logger.warning("MCP server: its %s cannot be listed: %s", key.replace("_", " "), error.message)
        return []


async def _pages(ask: Any, key: str) -> list[Any]:
    from mcp_types import PaginatedRequestParams

    found: list[Any] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await ask(params=PaginatedRequestParams(cursor=cursor))
        found += getattr(page, key)
        cursor = page.next_cursor
        if not cursor:
            return found
    raise RlfError(f"the server lists {key} on more than {_MAX_PAGES} pages")


def listing_of(server: McpServer) -> Listing:
    """What the server offers: as it was last read, or read now.

    Raises:
        RlfError: it cannot be started or reached, or does not answer in time.
    """
    found = known_listing(server)
    if found is None:
        _announce(server)
        found = fresh_listing(server)
    return found


async def list_ahead(server: McpServer) -> None:
    """Has `listing_of` answer at once, where asking the server would hold up the running loop. Raises as that does."""
    if known_listing(server) is None:
        _announce(server)
        _remembered(server, _checked(server, await _listed(server)))


def _announce(server: McpServer) -> None:
    """Raises NotRun where no server may be started or asked."""
    about_to_run(f"{'start' if server.command else 'ask'} the MCP server {server.shown}")


def known_listing(server: McpServer) -> Listing | None:
    """The list as it was last read, in this process or another."""
    identity = server.identity()
    listing = _READ.get(identity) or _kept(server)
    if listing is not None:
        _READ[identity] = listing
    return listing


def _remembered(server: McpServer, listing: Listing) -> Listing:
    _READ[server.identity()] = listing
    _keep(server, listing)
    return listing


def fresh_listing(server: McpServer) -> Listing:
    """The list as the server gives it now, which is kept.

    Works within a running loop too: it has a thread and a loop of its own.

    Raises:
        RlfError: as `listing_of`.
    """
    found: list[Listing | ToolFailure] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(_listed(server))), name="rlf-mcp-list")
    thread.start()
    thread.join()
    assert found, f"no word of {server.shown}"
    return _remembered(server, _checked(server, found[0]))


def _checked(server: McpServer, told: Listing | ToolFailure) -> Listing:
    if isinstance(told, ToolFailure):
        mend = "Run the command by hand" if server.command else "Check the address and that the server runs"
        raise RlfError(f"{told.text}. {mend}; `start_timeout_s` is how long is waited.")
    return told


async def _listed(server: McpServer) -> Listing | ToolFailure:
    from rlf.tools.mcp.connection import Connection

    connection = Connection(server)
    try:
        await connection.session()
        return connection.listing
    except ToolFailure as failure:
        return failure
    finally:
        await connection.close()


def forget(server: McpServer) -> None:
    """Has the list read anew next time."""
    _READ.pop(server.identity(), None)
    _file(server).unlink(missing_ok=True)


def _file(server: McpServer) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "rlf" / "mcp" / f"{server.identity()}.json"


def _kept(server: McpServer) -> Listing | None:
    try:
        kept = json.loads(_file(server).read_text(encoding="utf-8"))
        if kept["format"] != _FORMAT:
            return None
        return Listing(tuple(Entry(**entry) for entry in kept["entries"]))
    except (OSError, ValueError, TypeError, KeyError):  # absent, or another program's: read anew
        return None


def _keep(server: McpServer, listing: Listing) -> None:
    """A machine whose cache folder cannot be written to asks the server each time."""
    file = _file(server)
    text = json.dumps({"format": _FORMAT, "server": server.shown, "entries": [asdict(e) for e in listing.entries]})
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError:
        return
