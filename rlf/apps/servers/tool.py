"""`target: {kind: mcp}`: a tool or resource of an MCP server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from rlf.core import RlfError, nearest
from rlf.core.identity import hash_json
from rlf.core.kinds import wrong_value
from rlf.tools.kind import Limits, ToolKind, ToolRuntime
from rlf.tools.mcp.listing import forget, list_ahead, listing_faults
from rlf.tools.mcp.server import Entry, Listing, McpServer, variables
from rlf.tools.results import ToolFailure


class McpTool(ToolKind):
    """A tool or a resource of an MCP server; several declarations of one server share its sessions."""

    kind: Literal["mcp"] = "mcp"
    server: McpServer
    tool: str | None = None
    """Its name on the server."""
    resource: str | None = None
    """URI of a resource to read in place of a tool, for instance `docs://{page}`; arguments fill the braces."""
    digest: str | None = None
    """sha256 of the server's description of the tool when it was listed: a different one ends the run at its start."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.tool is None) == (self.resource is None):
            raise wrong_value("a target has either `tool` or `resource`; write one of them")
        return self

    @property
    def code_files(self) -> Sequence[str]:
        """Files that the server's command names: its code, as a rule."""
        return [argument for argument in self.server.args if Path(argument).is_file()]

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Compares the schema with the server's list, as it was last read or is read now."""
        if self.resource is not None:
            return _resource_complaints(self.resource, input_schema)
        assert self.tool is not None, "neither tool nor resource"
        return listing_faults(self.server, partial(misfits, self.tool, input_schema))

    def static_complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Those of a resource, whose arguments its URI names."""
        return [] if self.resource is None else _resource_complaints(self.resource, input_schema)

    async def prepare(self) -> None:
        """Loads the SDK, which takes a second, and reads the server's list, unless it is known."""
        await asyncio.to_thread(import_module, "rlf.apps.servers.runtime")
        if self.tool is not None:
            await list_ahead(self.server)

    @staticmethod
    async def fetch_listing(server: McpServer) -> Listing | ToolFailure:
        """What the server lists now, over a session of its own, or why it lists nothing."""
        from rlf.apps.servers.connection import Connection

        connection = Connection(server)
        try:
            await connection.session()
            return connection.listing
        except ToolFailure as failure:
            return failure
        finally:
            await connection.close()

    def source_hash(self) -> str:
        """Covers the server's command and the files it names, the tool and its description."""
        return hash_json([self.server.identity(), self.tool, self.resource, self.digest])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Starts or joins the server's sessions and compares its live list with what was declared."""
        from rlf.apps.servers.connection import use_pool
        from rlf.apps.servers.runtime import McpRuntime

        async with AsyncExitStack() as stack:
            try:
                pool = await stack.enter_async_context(use_pool(self.server))
            except ToolFailure as failure:
                raise RlfError(failure.text) from failure
            listing = pool.connections[0].listing
            entry = listing.tool(self.tool) if self.tool is not None else None
            change = self._describe_change(entry, listing)
            if change is not None:
                forget(self.server)
                raise RlfError(change)
            digest = None if entry is None else entry.digest
            runtime = McpRuntime(self.server, pool, tool=self.tool, resource=self.resource, digest=digest)
            runtime.held.push_async_exit(stack.pop_all())
        return runtime

    def _describe_change(self, entry: Entry | None, listing: Listing) -> str | None:
        """How the live server differs from what was declared, with the fix."""
        if self.tool is None:
            return None
        where = f"MCP server {self.server.shown}"
        if entry is None:
            known = f" (known: {', '.join(listing.tool_names)})"
            return f"{where} has no tool {self.tool!r}{nearest(self.tool, listing.tool_names)}{known}"
        if self.digest not in (None, entry.digest):
            return f"{where} changed {self.tool!r} since it was listed. Run `rlf check` again: it reads the list again."
        return None


def misfits(tool: str, input_schema: Mapping[str, Any], listing: Listing) -> list[str]:
    """Every mismatch between a declared schema and the one that the server lists, in words."""
    entry = listing.tool(tool)
    if entry is None:
        return [
            f"the server has no tool {tool!r}{nearest(tool, listing.tool_names)} "
            f"(known: {', '.join(listing.tool_names)})"
        ]
    theirs = entry.input_schema.get("properties", {})
    ours, required = input_schema.get("properties", {}), input_schema.get("required", ())
    is_open = entry.input_schema.get("additionalProperties", not theirs) is not False
    return [
        *(
            f"inputSchema has {name!r}, which the server's tool does not take{nearest(name, list(theirs))}"
            for name in ours
            if name not in theirs and not is_open
        ),
        *(
            f"the server's tool requires {name!r}; list it under `properties` and `required`"
            for name in entry.input_schema.get("required", ())
            if name not in required
        ),
    ]


def _resource_complaints(resource: str, input_schema: Mapping[str, Any]) -> list[str]:
    names, required = variables(resource), input_schema.get("required", ())
    return [
        *(
            f"inputSchema has {name!r}, which `resource` does not"
            for name in input_schema.get("properties", {})
            if name not in names
        ),
        *(
            f"`resource` has {name!r}; list it under `properties` and `required`"
            for name in names
            if name not in required
        ),
    ]
