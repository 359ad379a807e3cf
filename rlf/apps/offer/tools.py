"""Declared tools as an MCP server: any client calls them through rlf's own executor, so limits and caches hold."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from rlf import __version__
from rlf.core.servers import VisitorGuard, listening, served_stdio, stopping, url_of
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.mcp.server import OUTCOME, SERVER_NAME, TRAJECTORY, TRAJECTORY_ENDED
from rlf.types import Outcome, ToolCall, ToolResult

_UNGUARDED = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""The SDK guards loopback addresses alone; rlf's own guard is in front of every server."""


class TrajectoryParams(NotificationParams):
    """Of the notification that a trajectory is over."""

    trajectory: str


def mcp_server(executor: Executor) -> Server[dict[str, Any]]:
    """A server of the executor's tools; hidden ones are not among them."""

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))
                for tool in executor.descriptions
            ]
        )

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        trajectory_id = (params.meta or {}).get(TRAJECTORY)
        if not isinstance(trajectory_id, str):
            trajectory_id = f"client-{id(context.session)}"
        return mcp_result(
            await executor.invoke(ToolCall(params.name, params.arguments or {}), trajectory_id=trajectory_id)
        )

    async def end_trajectory(context: Any, params: TrajectoryParams) -> None:
        await executor.end_trajectory(params.trajectory)

    server: Server[dict[str, Any]] = Server(
        SERVER_NAME, version=__version__, on_list_tools=list_tools, on_call_tool=call_tool
    )
    server.add_notification_handler(TRAJECTORY_ENDED, TrajectoryParams, end_trajectory)
    return server


def mcp_result(result: ToolResult) -> CallToolResult:
    """A call's result in MCP's terms, with its outcome for rlf's own client."""
    images = [
        ImageContent(type="image", data=base64.b64encode(image.data).decode(), mime_type=image.mime_type)
        for image in result.images
    ]
    structured = result.structured
    return CallToolResult(
        content=[TextContent(type="text", text=result.text), *images],
        structured_content=structured if structured is None or isinstance(structured, dict) else {"result": structured},
        is_error=result.outcome is not Outcome.OK,
        _meta={OUTCOME: result.outcome.value},
    )


async def serve_tools_stdio(tools: Sequence[ToolDeclaration]) -> None:
    """Serves until stdin ends. What tools print, also while they open, goes to stderr."""
    async with served_stdio() as streams, Executor(tools) as executor:
        server = mcp_server(executor)
        await server.run(*streams, server.create_initialization_options())


async def serve_http(tools: Sequence[ToolDeclaration], host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves streamable HTTP at `/mcp` until SIGINT or SIGTERM. Raises RunError where the port is in use."""
    async with Executor(tools) as executor:
        await serve_mcp_app(mcp_server(executor), host, port, tell)


async def serve_mcp_app(server: Server[dict[str, Any]], host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves an MCP server at `/mcp` until SIGINT or SIGTERM.

    Args:
        tell: called with the address once it is served.

    Raises:
        RunError: the port is in use.
    """
    import uvicorn

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the loop's own handlers stop it, so that tools are closed after it

    with listening(host, port) as listener:
        app = server.streamable_http_app(
            json_response=True, session_idle_timeout=None, max_sessions=None, transport_security=_UNGUARDED
        )
        config = uvicorn.Config(
            VisitorGuard(app, host), log_level="warning", timeout_graceful_shutdown=2, lifespan="on"
        )
        running = Quiet(config)
        with stopping(lambda: setattr(running, "should_exit", True)):
            tell(f"{url_of(listener)}/mcp")
            await running.serve(sockets=[listener])
