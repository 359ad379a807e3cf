"""An item of `tools:` that names a server in place of a tool: every tool that the server lists is declared by it."""

from __future__ import annotations

import re

from pydantic import Field

from rlf.core.kinds import StrictModel
from rlf.tools.declaration import CacheSpec
from rlf.tools.limits import Limits
from rlf.tools.mcp.offer import Entry, Listing
from rlf.tools.mcp.server import McpServer

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
