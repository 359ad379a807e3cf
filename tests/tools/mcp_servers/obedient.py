"""An MCP server whose one tool does what its argument says."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("conformance")
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0"


@server.tool()
async def act(text: str) -> Any:
    """Do it."""
    what, _, word = text.partition(" ")
    if what == "hang":
        await asyncio.sleep(60)
    if what == "fail":
        raise ValueError(word)
    if what == "die":
        os._exit(7)
    return Image(data=PNG, format="png") if what == "draw" else word


if __name__ == "__main__":
    server.run()
