"""Lists of an MCP server's tools, known to a spec without a connection: they are kept by the server's identity.

A list is read over a connection of its own the first time, and again when the command, its arguments or the files
that they name change. None of these shows that a package was upgraded or a module edited, so nothing is held against a
kept list before it is read again (`listing_faults`). What answers at a url is known only to the server itself: its
list is not kept for other processes. A run compares what it was checked with against the live server.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import Field

from rlf.core.callables import about_to_run
from rlf.core.errors import RlfError
from rlf.core.kinds import StrictModel
from rlf.core.process import cache_folder
from rlf.tools.declaration import CacheSpec
from rlf.tools.kind import TOOL_KINDS, Limits
from rlf.tools.mcp.server import Entry, Listing, McpServer
from rlf.tools.results import ToolFailure

T = TypeVar("T")
_FORMAT = 1
_FRESH_S: Final = 10.0
"""A list that was read so recently is the server's own, whatever its identity covers."""


class _Reading(NamedTuple):
    listing: Listing
    read_at: float
    """By the monotonic clock; before all time where another process has read it."""

    @property
    def is_fresh(self) -> bool:
        return monotonic() - self.read_at < _FRESH_S


_READ: dict[str, _Reading] = {}
"""What this process has read, by the server's identity."""


def listing_of(server: McpServer) -> Listing:
    """The server's list: as it was last read, or read now.

    Raises:
        RlfError: it cannot be started or reached, or does not answer in time.
    """
    if (known := known_listing(server)) is not None:
        return known
    _announce_run(server)
    return fresh_listing(server)


def listing_faults(server: McpServer, find: Callable[[Listing], list[T]]) -> list[T]:
    """What `find` has against the server's list, which is read again before a fault is found in one that is not fresh.

    Raises:
        RlfError: as `listing_of`.
    """
    found = find(listing_of(server))
    if found and not _is_fresh(server):
        _announce_run(server)
        found = find(fresh_listing(server))
    return found


async def list_ahead(server: McpServer) -> None:
    """Has `listing_of` answer at once, where asking the server would hold up the running loop. Raises as that does."""
    if known_listing(server) is None:
        await list_live(server)


async def list_live(server: McpServer) -> Listing:
    """The list as the server gives it now, which is kept. Raises as `listing_of`."""
    if not _is_fresh(server):
        _announce_run(server)
        _remember_listing(server, _check_listing(server, await _fetch_listing(server)))
    return _READ[server.identity()].listing


def _is_fresh(server: McpServer) -> bool:
    reading = _READ.get(server.identity())
    return reading is not None and reading.is_fresh


def _announce_run(server: McpServer) -> None:
    """Raises NotRun where no server may be started or asked."""
    about_to_run(f"{'start' if server.command else 'ask'} the MCP server {server.shown}")


def known_listing(server: McpServer) -> Listing | None:
    """The list as it was last read, in this process or another; that of a url only while it is fresh."""
    identity = server.identity()
    reading = _READ.get(identity)
    if server.url is not None:
        return reading.listing if reading is not None and reading.is_fresh else None
    if reading is None and (kept := _read_kept(server)) is not None:
        reading = _READ[identity] = _Reading(kept, -math.inf)
    return None if reading is None else reading.listing


def _remember_listing(server: McpServer, listing: Listing) -> Listing:
    _READ[server.identity()] = _Reading(listing, monotonic())
    if server.url is None:
        _keep_listing(server, listing)
    return listing


def fresh_listing(server: McpServer) -> Listing:
    """The list as the server gives it now, which is kept.

    Works within a running loop too: it has a thread and a loop of its own.

    Raises:
        RlfError: as `listing_of`.
    """
    found: list[Listing | ToolFailure] = []
    fetched = _fetch_listing(server)
    thread = threading.Thread(target=lambda: found.append(asyncio.run(fetched)), name="rlf-mcp-list")
    thread.start()
    thread.join()
    assert found, f"no answer of {server.shown}"
    return _remember_listing(server, _check_listing(server, found[0]))


def _check_listing(server: McpServer, listing: Listing | ToolFailure) -> Listing:
    if isinstance(listing, ToolFailure):
        fix = "Run the command by hand" if server.command else "Check the address and that the server runs"
        raise RlfError(f"{listing.text.rstrip('.')}. {fix}; `start_timeout_s` is how long rlf waits.")
    return listing


def _fetch_listing(server: McpServer) -> Coroutine[Any, Any, Listing | ToolFailure]:
    """Raises UnknownKind where this installation has no part that reaches MCP servers."""
    reach: Any = TOOL_KINDS.get("mcp")
    fetched: Coroutine[Any, Any, Listing | ToolFailure] = reach.fetch_listing(server)
    return fetched


def forget(server: McpServer) -> None:
    """Makes the next use read the list again."""
    _READ.pop(server.identity(), None)
    with suppress(OSError):
        _cache_file(server).unlink(missing_ok=True)


def _cache_file(server: McpServer) -> Path:
    """Raises OSError where this user has no folder for caches."""
    return cache_folder() / "mcp" / f"{server.identity()}.json"


def _read_kept(server: McpServer) -> Listing | None:
    try:
        kept = json.loads(_cache_file(server).read_text(encoding="utf-8"))
        if kept["format"] != _FORMAT:
            return None
        return Listing(tuple(Entry(**entry) for entry in kept["entries"]))
    except (OSError, ValueError, TypeError, KeyError):  # absent, or another program's: the server is asked
        return None


def _keep_listing(server: McpServer, listing: Listing) -> None:
    """A machine whose cache folder cannot be written to asks the server each time."""
    text = json.dumps({"format": _FORMAT, "server": server.shown, "entries": [asdict(e) for e in listing.entries]})
    try:
        file = _cache_file(server)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError:
        return


# An item of `tools:` that names a server in place of a tool: every tool that the server lists is declared by it.

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class ToolServer(StrictModel):
    """An MCP server whose tools are declared as it lists them. `mcpServers: {NAME: ...}` stands for several."""

    mcp: McpServer
    """The server; its list is read when the spec is checked, and kept until the command or its files change."""
    include: tuple[str, ...] | None = None
    """Names of the tools that are taken, as the server has them; None takes all."""
    exclude: tuple[str, ...] = ()
    """Names of the tools that are left out."""
    prefix: str = Field("", pattern=r"^([A-Za-z_][A-Za-z0-9_-]{0,31})?$")
    """Prefix of every name that the model sees."""
    resources: bool = False
    """Whether the server's resources are tools too, which read them."""
    limits: Limits = Limits()
    """Those of every tool."""
    idempotent: bool = False
    """Whether calling any of them twice does no more than calling it once."""
    cache: CacheSpec = CacheSpec()
    """Whether results are kept, for every tool."""
    hidden: bool = False
    """Whether the model sees none of them."""

    def chosen(self, listing: Listing) -> list[Entry]:
        """The chosen entries of a server's list."""
        offered = [entry for entry in listing.entries if self.resources or entry.resource is None]
        wanted = [entry for entry in offered if self.include is None or entry.name in self.include]
        return [entry for entry in wanted if entry.name not in self.exclude]

    def name_of(self, entry: Entry) -> str:
        """The entry's name for the model."""
        return (self.prefix + _NOT_IN_NAMES.sub("_", entry.name))[:64]
