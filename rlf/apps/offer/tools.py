"""Declared tools as an MCP server: any client calls them through rlf's own executor, so limits and caches hold."""

from __future__ import annotations

import base64
import contextlib
import json
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
from rlf.apps.offer.session import WorldSession
from rlf.core.servers import VisitorGuard, listening, served_stdio, stopping, url_of
from rlf.environments.playing import Bench, Ranges
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.mcp.server import OUTCOME, SERVER_NAME, TRAJECTORY, TRAJECTORY_ENDED
from rlf.types import Outcome, ToolCall, ToolResult, WorldFailure

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


# Every tool of a world takes `world`, a name of the client's choice: worlds of different names share nothing, and a new
# one has the first task until it is reset. One that was ended begins again with `reset_state` alone: a late call must
# not step a world that nobody asked for.

_WORLD = "world"
_NUMBER = {"type": "integer", "minimum": 0}
LIFECYCLE: dict[str, tuple[str, dict[str, Any]]] = {
    "reset_state": (
        "Start an episode: a task by its number, or the task that a seed picks.",
        {"type": "object", "properties": {"task": _NUMBER, "seed": _NUMBER}},
    ),
    "get_score": ("Score the present state.", {"type": "object", "properties": {}}),
    "end_world": ("Close the world.", {"type": "object", "properties": {}}),
    "save_state": ("Show the task and the state of the world.", {"type": "object", "properties": {}}),
}
"""Tools that no policy should see, with description and schema."""


def world_server(bench: Bench, ranges: Ranges, name: str) -> Server[dict[str, Any]]:
    """A server of the world's tools and of its lifecycle."""
    sessions: dict[str, WorldSession] = {}
    ended: set[str] = set()
    most = bench.num_worlds

    def find_session(world: str, tool: str) -> WorldSession:
        """The session of a name, which may be new. Raises RuntimeError."""
        if world in ended and tool != "reset_state":
            raise RuntimeError(f"world {world!r} has ended; call reset_state to begin it again")
        if world not in sessions and len(sessions) >= most:
            raise RuntimeError(f"{most} worlds are open, the most by limits.max_concurrency; end one by end_world")
        ended.discard(world)
        return sessions.setdefault(world, WorldSession(bench, ranges))

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        named = {one.name: (one.description, dict(one.input_schema)) for one in bench.executor.descriptions}
        listed = named | LIFECYCLE
        return ListToolsResult(
            tools=[
                Tool(name=name, description=words, input_schema=_with_world(schema))
                for name, (words, schema) in listed.items()
            ]
        )

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        arguments = dict(params.arguments or {})
        world = str(arguments.pop(_WORLD, ""))
        try:
            if params.name == "end_world":
                ended.add(world)
                if world in sessions:
                    await sessions.pop(world).close()
                return _make_result({"worlds": len(sessions)})
            return await _called(find_session(world, params.name), params.name, arguments)
        except WorldFailure as failure:  # which is no fault of the client's call
            return _make_error(failure, {OUTCOME: Outcome.INFRA.value})
        except (RuntimeError, ValueError) as refusal:
            return _make_error(refusal, None)

    return Server(name, version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def _with_world(schema: dict[str, Any]) -> dict[str, Any]:
    world = {"type": "string", "description": "Name of the world; leave it out for the unnamed world."}
    return schema | {"properties": {**(schema.get("properties") or {}), _WORLD: world}}


async def _called(session: WorldSession, name: str, arguments: dict[str, Any]) -> CallToolResult:
    if name == "reset_state":
        return _make_result({"text": await session.reset(arguments.get("task"), arguments.get("seed"))})
    if name == "save_state":
        return _make_result(session.world_state())
    if session.task is None:
        await session.reset(0)
    if name == "get_score":
        return _make_result(await session.scores())
    acted = await session.call(ToolCall(name, arguments))
    assert acted.result is not None, "a call without a result"
    return mcp_result(acted.result)


def _make_error(fault: Exception, meta: dict[str, Any] | None) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=str(fault))], is_error=True, _meta=meta)


def _make_result(value: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=json.dumps(value))], structured_content=value)
