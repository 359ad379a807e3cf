"""`rlf env serve`: a spec's world as an OpenEnv server or as an MCP server."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from rlf.cli.arguments import SpecArguments, split_arguments
from rlf.core.errors import RlfError


def serve_world(
    arguments: SpecArguments,
    openenv: Annotated[bool, typer.Option("--openenv", help="Serve OpenEnv's protocol.")] = False,
    mcp: Annotated[
        Literal["stdio", "http"] | None,
        typer.Option("--mcp", help="Serve MCP, with lifecycle tools beside the world's own.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes any that is free.")] = 8000,
) -> None:
    """Serve the world of a spec to OpenEnv's clients (`--openenv`) or to MCP clients (`--mcp`), until Ctrl-C."""
    import asyncio

    if openenv is (mcp is not None):
        raise RlfError("Write either `--openenv`, `--mcp stdio` or `--mcp http`.")
    from rlf.api.env import serve, worlds

    spec = worlds.world_spec(*split_arguments(arguments))
    if mcp == "stdio":
        asyncio.run(serve.serve_mcp_stdio(spec))
        return
    serving = serve.serve_openenv if openenv else serve.serve_mcp_http
    asyncio.run(serving(spec, host, port, _print_url))
    raise KeyboardInterrupt  # nothing else ends it


def _print_url(url: str) -> None:
    print(url, file=sys.stderr, flush=True)
