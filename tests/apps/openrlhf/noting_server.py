"""An MCP server that notes its process at its start and at each call."""

import os
from pathlib import Path

from mcp.server.mcpserver import MCPServer

NOTES = Path(os.environ["NOTES"])
server = MCPServer("notes")


def note(word: str) -> None:
    with NOTES.open("a") as file:
        file.write(f"{word} {os.getpid()}\n")


@server.tool()
def notes(query: str) -> str:
    note("called")
    return query


if __name__ == "__main__":
    note("started")
    server.run("stdio")
