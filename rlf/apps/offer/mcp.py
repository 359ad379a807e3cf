"""A world behind MCP: its tools, and `reset_state`, `get_score`, `save_state`, `end_world` for those who train in it.

Every tool takes `world`, a name of the client's choice: worlds of different names share nothing, and a name that is new
has a world of the first task until it is reset. One that was ended begins again with `reset_state` alone: a late call
must not step a world that nobody asked for.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

from rlf import __version__
from rlf.apps.offer.session import WorldSession
from rlf.apps.offer.tools import mcp_result
from rlf.environments.playing import Bench, Ranges
from rlf.tools.mcp.server import OUTCOME
from rlf.types import Outcome, ToolCall, WorldFailure

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
