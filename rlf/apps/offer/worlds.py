"""`rlf env serve`: serves a spec's world to other programs' clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from rlf.core.servers import listening, serve_app, served_stdio
from rlf.environments.playing import Bench, open_bench
from rlf.runs.worlds import score_ranges, tasks_of, world_of

if TYPE_CHECKING:
    from rlf.spec.models import RunSpec


def _open_bench(spec: RunSpec) -> AbstractAsyncContextManager[Bench]:
    return open_bench(world_of(spec), tasks_of(spec), seed=spec.seed, tools=spec.tools)


async def serve_openenv(spec: RunSpec, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves OpenEnv's protocol until SIGINT or SIGTERM.

    Args:
        tell: called with the address once it is served.

    Raises:
        RunError: the port is in use.
    """
    from aiohttp import web

    from rlf.apps.offer.openenv import OpenEnvServer
    from rlf.core.servers import guard_visitors

    with listening(host, port) as listener:
        async with _open_bench(spec) as bench:
            app = web.Application(middlewares=[guard_visitors(host)])
            server = OpenEnvServer(bench, score_ranges(spec), spec.name)
            app.add_routes(server.routes())
            app.on_shutdown.append(server.close_worlds)
            await serve_app(app, listener, tell)


async def serve_mcp_stdio(spec: RunSpec) -> None:
    """Serves MCP on stdin and stdout until stdin ends."""
    from rlf.apps.offer.tools import world_server

    async with served_stdio() as streams, _open_bench(spec) as bench:
        server = world_server(bench, score_ranges(spec), spec.name)
        await server.run(*streams, server.create_initialization_options())


async def serve_mcp_http(spec: RunSpec, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves MCP's streamable HTTP at `/mcp` until SIGINT or SIGTERM. Raises RunError."""
    from rlf.apps.offer.tools import serve_mcp_app, world_server

    async with _open_bench(spec) as bench:
        await serve_mcp_app(world_server(bench, score_ranges(spec), spec.name), host, port, tell)
