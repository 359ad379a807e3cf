"""`rlf tools serve`: declared tools as an MCP server, or a corpus as a search server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from rlf.cli.arguments import ToolFiles
from rlf.core.errors import RlfError


def serve_tools(
    files: ToolFiles = None,
    mcp: Annotated[
        Literal["stdio", "http"] | None,
        typer.Option("--mcp", help="Serve the tools to MCP clients.", show_default=False),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(
            "--search",
            metavar="CORPUS",
            help="Serve a corpus, {id, contents} a row, to `POST /retrieve`.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes any that is free.")] = 8000,
) -> None:
    """Serve declared tools to MCP clients (`--mcp`), or a corpus to Search-R1's clients (`--search`), until Ctrl-C."""
    import asyncio

    if (mcp is None) == (search is None):
        raise RlfError("Write either `--mcp stdio`, `--mcp http` or `--search CORPUS`.")
    if search is not None:
        if files:
            raise RlfError("--search serves a corpus and no tools; leave out the files.")
        from rlf.api.tools.search import serve_search

        asyncio.run(serve_search(search, host, port, _print_line))
        raise KeyboardInterrupt  # nothing else ends it
    from rlf.api.tools.load import load_tools
    from rlf.api.tools.serve import serve_http, serve_stdio

    tools = load_tools(files or ())
    if mcp == "stdio":
        asyncio.run(serve_stdio(tools))
    else:
        asyncio.run(serve_http(tools, host, port, _print_line))
        raise KeyboardInterrupt


def _print_line(line: str) -> None:
    """On stderr, since stdout may be somebody's pipe."""
    print(line, file=sys.stderr, flush=True)
