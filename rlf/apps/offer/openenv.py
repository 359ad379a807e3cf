"""A world behind OpenEnv's protocol. A WebSocket is a session with a world of its own; plain HTTP holds none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import WSMsgType, web

from rlf import __version__
from rlf.apps.offer.session import ActionReply, WorldSession
from rlf.environments.playing import Bench, Ranges
from rlf.types import ToolCall, WorldFailure

_SESSIONLESS = "plain HTTP holds no session: a step would go to a fresh world. Use the WebSocket at /ws."
_MAX_MESSAGE_BYTES = 4_000_000
_PATHS = ("/health", "/metadata", "/schema", "/mcp", "/reset", "/step", "/state")


class OpenEnvServer:
    """Answers OpenEnv's clients and its validator."""

    def __init__(self, bench: Bench, ranges: Ranges, name: str) -> None:
        self._bench, self._ranges, self._name = bench, ranges, name
        self._sessions = set[WorldSession]()

    def routes(self) -> list[web.RouteDef]:
        """The server's routes."""
        fixed = {"/openapi.json": self._openapi(), "/health": {"status": "healthy"}, "/metadata": self._metadata()}
        routes = [web.get(path, _answering(value)) for path, value in (fixed | {"/schema": self._schema()}).items()]
        routes += [web.post("/reset", _refuse), web.post("/step", _refuse), web.get("/state", _refuse)]
        return [*routes, web.post("/mcp", self._mcp), web.get("/ws", self._session)]

    def _openapi(self) -> dict[str, Any]:
        posted = ("/mcp", "/reset", "/step")
        paths: dict[str, Any] = {path: {"post" if path in posted else "get": {"responses": {}}} for path in _PATHS}
        return {"openapi": "3.1.0", "info": {"title": self._name, "version": __version__}, "paths": paths}

    def _metadata(self) -> dict[str, Any]:
        tools = ", ".join(tool.name for tool in self._bench.executor.descriptions) or "none"
        words = f"A world of kind {self._bench.spec.kind} with {len(self._bench.tasks)} tasks; tools: {tools}"
        return {"name": self._name, "description": words, "version": __version__}

    def _schema(self) -> dict[str, Any]:
        tools = self._bench.executor.descriptions
        listed = "; ".join(f"{tool.name}: {tool.description} {json.dumps(tool.input_schema)}" for tool in tools)
        action = {
            "tool": {"type": "string", "enum": [tool.name for tool in tools], "description": listed},
            "arguments": {"type": "object", "description": "Of the tool."},
            "text": {"type": "string", "description": "A message instead of a call; it may end the episode."},
        }
        observation = {"text": {"type": "string"}, "scores": {"type": "object"}}
        state = {"episode_id": {"type": "string"}, "step_count": {"type": "integer"}, "task": {"type": "string"}}
        return {
            "action": {"type": "object", "description": "Call a tool, or say something.", "properties": action},
            "observation": {"type": "object", "properties": observation},
            "state": {"type": "object", "properties": state},
        }

    async def _mcp(self, request: web.Request) -> web.Response:
        """Lists the tools; calls need a session."""
        try:
            asked = await request.json()
        except ValueError:
            asked = None
        asked = asked if isinstance(asked, dict) else {}
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.get("id")}
        if asked.get("method") == "tools/list":
            tools = self._bench.executor.descriptions
            listed = [
                {"name": one.name, "description": one.description, "inputSchema": dict(one.input_schema)}
                for one in tools
            ]
            return web.json_response(reply | {"result": {"tools": listed}})
        code, words = (-32600, "no request") if "method" not in asked else (-32601, _SESSIONLESS)
        return web.json_response(reply | {"error": {"code": code, "message": words}})

    async def _session(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=_MAX_MESSAGE_BYTES, heartbeat=30)
        await socket.prepare(request)
        most = self._bench.num_worlds
        if len(self._sessions) >= most:  # its reset would wait until another client leaves
            words = f"{most} clients have a world, the most by limits.max_concurrency"
            await socket.send_json(_error("CAPACITY_REACHED", words))
            await socket.close()
            return socket
        session = WorldSession(self._bench, self._ranges)
        self._sessions.add(session)
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
                answer = await _answer_message(session, message.data)
                if answer is None:
                    break
                await socket.send_json(answer)
        finally:
            self._sessions.discard(session)
            await session.close()
        return socket

    async def close_worlds(self, _: web.Application) -> None:
        """Closes the worlds of clients that are connected; what still serves them is cancelled after that."""
        await asyncio.gather(*(session.close() for session in self._sessions))


async def _answer_message(session: WorldSession, message: str) -> dict[str, Any] | None:
    """The answer to one message; None where it ends the session."""
    try:
        asked = json.loads(message)
    except ValueError as fault:
        return _error("INVALID_JSON", f"Invalid JSON: {fault}")
    if not isinstance(asked, dict) or not isinstance(asked.get("data", {}), dict):
        return _error("VALIDATION_ERROR", "a message is an object with `type` and an object `data`")
    data = asked.get("data", {})
    try:
        match asked.get("type"):
            case "reset":
                said = await session.reset(_number(data, "task"), _number(data, "seed"))
                return _observation({"text": said}, None, done=False)
            case "step":
                return _show_observation(await _step(session, data))
            case "state":
                return {"type": "state", "data": session.state()}
            case "close":
                return None
    except ValueError as fault:
        return _error("VALIDATION_ERROR", str(fault))
    except (WorldFailure, RuntimeError) as failure:
        return _error("EXECUTION_ERROR", str(failure))
    return _error("UNKNOWN_TYPE", f"Unknown message type: {asked.get('type')}")


async def _step(session: WorldSession, action: Mapping[str, Any]) -> ActionReply:
    """Raises ValueError for an action that is neither a call nor words."""
    tool, text, arguments = action.get("tool"), action.get("text"), action.get("arguments") or {}
    if isinstance(tool, str) and text is None and isinstance(arguments, dict):
        return await session.call(ToolCall(tool, arguments))
    if isinstance(text, str) and tool is None:
        return await session.say(text)
    raise ValueError("an action has either `tool` with `arguments`, or `text`")


def _number(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name}: got {value!r}; expected a whole number")
    return value


def _show_observation(acted: ActionReply) -> dict[str, Any]:
    observation = {"text": acted.said or ""} | ({} if acted.scores is None else {"scores": acted.scores})
    return _observation(observation, acted.reward, done=acted.done)


def _observation(observation: dict[str, Any], reward: float | None, *, done: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}


def _error(code: str, words: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": words, "code": code}}


def _answering(value: Any) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(value)

    return answer


async def _refuse(request: web.Request) -> web.Response:
    return web.json_response({"detail": _SESSIONLESS}, status=409)
