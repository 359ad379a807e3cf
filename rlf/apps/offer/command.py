"""`rlf env serve`: a spec's world as an OpenEnv server or as an MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import Host, McpTransport, Port, SpecArguments, ToolFiles, split_arguments
from rlf.cli.output import print_note
from rlf.core.errors import RlfError


def serve_world_command(
    arguments: SpecArguments,
    openenv: Annotated[bool, typer.Option("--openenv", help="Serve OpenEnv's protocol.")] = False,
    mcp: McpTransport = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
) -> None:
    """Serve the world of a spec to OpenEnv's clients (`--openenv`) or to MCP clients (`--mcp`), until Ctrl-C."""
    import asyncio

    if openenv is (mcp is not None):
        raise RlfError("Write either `--openenv`, `--mcp stdio` or `--mcp http`.")
    from rlf.apps.offer import worlds as serve
    from rlf.runs.worlds import world_spec

    spec = world_spec(*split_arguments(arguments))
    if mcp == "stdio":
        asyncio.run(serve.serve_mcp_stdio(spec))
        return
    serving = serve.serve_openenv if openenv else serve.serve_mcp_http
    asyncio.run(serving(spec, host, port, print_note))
    raise KeyboardInterrupt  # nothing else ends it


# `rlf tools serve`: declared tools as an MCP server, or a corpus as a search server.


def serve_tools(
    files: ToolFiles = None,
    mcp: McpTransport = None,
    search: Annotated[
        Path | None,
        typer.Option(
            "--search",
            metavar="CORPUS",
            help="Serve a corpus, {id, contents} a row, to `POST /retrieve`.",
            show_default=False,
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
) -> None:
    """Serve declared tools to MCP clients (`--mcp`), or a corpus to Search-R1's clients (`--search`), until Ctrl-C."""
    import asyncio

    if (mcp is None) == (search is None):
        raise RlfError("Write either `--mcp stdio`, `--mcp http` or `--search CORPUS`.")
    if search is not None:
        if files:
            raise RlfError("--search serves a corpus and no tools; leave out the files.")
        from rlf.apps.offer.search import serve_search

        asyncio.run(serve_search(search, host, port, print_note))
        raise KeyboardInterrupt  # nothing else ends it
    from rlf.apps.offer.tools import serve_http, serve_tools_stdio
    from rlf.runs.declared import load_tools

    tools = load_tools(*split_arguments(files or (), need_file=bool(files)))
    if mcp == "stdio":
        asyncio.run(serve_tools_stdio(tools))
    else:
        asyncio.run(serve_http(tools, host, port, print_note))
        raise KeyboardInterrupt
