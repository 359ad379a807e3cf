"""`rlf env serve`: a spec's world as an OpenEnv server or as an MCP server."""

from __future__ import annotations

from typing import Annotated

import typer

from rlf.cli.arguments import Host, McpTransport, Port, SpecArguments, split_arguments
from rlf.cli.output import print_note
from rlf.core.errors import RlfError


def serve_world(
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
    from rlf.apps.worlds import worlds

    spec = worlds.world_spec(*split_arguments(arguments))
    if mcp == "stdio":
        asyncio.run(serve.serve_mcp_stdio(spec))
        return
    serving = serve.serve_openenv if openenv else serve.serve_mcp_http
    asyncio.run(serving(spec, host, port, print_note))
    raise KeyboardInterrupt  # nothing else ends it
