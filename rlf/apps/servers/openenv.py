"""`env: {kind: openenv}`: a world of an OpenEnv server, over its WebSocket, which alone holds a session."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PrivateAttr

from rlf.core import RlfError
from rlf.core.addresses import WebAddress
from rlf.core.callables import about_to_run
from rlf.core.identity import hash_json
from rlf.core.text import clean_value
from rlf.environments.kind import EnvSpec
from rlf.environments.world import MakeWorld, Step, World, fill
from rlf.tools.outputs import to_text
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription, ToolOutput

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse

_ASK_S = 10.0
_END_S = 2.0
"""Time that a server has to end a world."""
_MAX_MESSAGE_BYTES = 100_000_000
_REFUSED = ("VALIDATION_ERROR",)
"""Codes of errors that judge the action, which the model reads; all others are the world's own."""


class OpenEnvEnv(EnvSpec):
    """A world of an OpenEnv server: each trajectory has a WebSocket, which is a session of its own.

    Plain HTTP is refused: `POST /step` steps a fresh world each time, so that a policy would train on noise without an
    error. The action is a tool with the server's own schema, or with `text` the whole answer of a turn. Where an action
    is a call of one of the server's MCP tools, the model has those tools, and reads their results. Scores are `score`,
    the sum of the rewards, and `last`, the last reward; neither where none came.
    """

    kind: Literal["openenv"] = "openenv"
    url: WebAddress
    """Where the server answers, without a path such as `/step`."""
    tool: str = "step"
    """The action's name as a tool; MCP tools have names of their own."""
    text: str | None = None
    """Field of the action that takes the whole answer of a turn; the world then speaks, and has no tool."""
    reset: Mapping[str, Any] = {"seed": "{seed}"}
    """Arguments of a reset; `{seed}`, `{task}` and `{COLUMN}` are the world's seed, the task's id, the row's column."""
    _has_tools: bool = PrivateAttr(default=False)
    """Whether an action calls one of the server's own tools; known once they are described."""

    @property
    def speaks(self) -> bool:
        """Whether answers are actions."""
        return self.text is not None

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Always the same."""
        return ("score", "last")

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The action by the server's schema, or the tools that it calls. Raises RlfError where it cannot be asked."""
        if self.text is not None:
            return ()
        schema = self._action_schema()
        self._has_tools = _calls_tools(schema)
        if self._has_tools:
            return self._list_tools()
        properties = {name: one for name, one in (schema.get("properties") or {}).items() if name != "metadata"}
        description = schema.get("description") or "Act in the world."
        kept = {key: value for key, value in schema.items() if key in ("required", "$defs", "additionalProperties")}
        return [ToolDescription(self.tool, description, {"type": "object", **kept, "properties": properties})]

    def static_complaints(self) -> list[str]:
        """Finds an address without a session."""
        why = "plain HTTP holds no session, and each `POST /step` steps a fresh world"
        path = self.url.split("://", 1)[1].partition("/")[2].strip("/")
        if path.rpartition("/")[2] in ("step", "reset", "ws", "state"):
            return [f"url: got {self.url}; expected the server's root, whose `/ws` rlf uses: {why}"]
        return []

    def complaints(self) -> list[str]:
        """Asks the server how it is and what an action is."""
        if complaints := self.static_complaints():
            return complaints
        if self._fetch_json("health").get("status") not in ("healthy", "ok"):
            return [f"url: the server at {self.url} reports that it is not healthy"]
        fields = self._action_schema().get("properties") or {}
        if self.text is not None and self.text not in fields:
            return [f"text: an action has no field {self.text!r} (it has: {', '.join(fields) or 'none'})"]
        return []

    def _action_schema(self) -> dict[str, Any]:
        """The schema of an action. Raises RlfError."""
        action = self._fetch_json("schema").get("action")
        if not isinstance(action, dict):
            raise RlfError(f"{self.url}: it describes no action; expected an OpenEnv server. Correct the url.")
        return action

    def _list_tools(self) -> list[ToolDescription]:
        """The server's MCP tools, which it lists by a step of a world that nobody else has. Raises RlfError."""
        found = self._fetch_json("step", {"action": {"type": "list_tools"}}).get("observation") or {}
        listed = found.get("tools")
        if not listed:
            fault = (found.get("metadata") or {}).get("error") or "it lists none"
            raise RlfError(f"{self.url}: the tools that its actions call: {fault}. Correct the server.")
        return [ToolDescription(one["name"], one.get("description") or "", one["input_schema"]) for one in listed]

    def _fetch_json(self, path: str, sent: Any = None) -> dict[str, Any]:
        """The server's answer at a path, to what is sent there. Raises RlfError."""
        url = f"{self.url.rstrip('/')}/{path}"
        about_to_run(f"ask the OpenEnv server {url}")
        body = None if sent is None else json.dumps(sent).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_ASK_S) as answer:
                found = json.load(answer)
        except (OSError, ValueError) as fault:
            raise RlfError(f"{url}: {fault}. Start the OpenEnv server, or correct the url.") from fault
        if not isinstance(found, dict):
            raise RlfError(f"{url}: got {found!r:.40}; expected the answer of an OpenEnv server. Correct the url.")
        return found

    def source_hash(self) -> str:
        """The address and what is sent; what the server does is not known."""
        return hash_json([self.url, dict(self.reset), self.tool, self.text])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Opens the client that all sessions share."""
        import aiohttp

        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as client:
            yield partial(_make_world, self, client)


async def _make_world(spec: OpenEnvEnv, client: ClientSession) -> World:
    """A world with a WebSocket of its own, which is a session."""
    import aiohttp

    url = f"{spec.url.rstrip('/')}/ws"
    try:
        socket = await client.ws_connect(url, max_msg_size=_MAX_MESSAGE_BYTES)
    except aiohttp.WSServerHandshakeError as fault:
        words = f"{url}: the server holds no sessions (HTTP {fault.status}); plain HTTP would step a fresh world"
        raise RuntimeError(words) from fault
    return _OpenEnvWorld(spec, socket)


class _OpenEnvWorld(World):
    """One session."""

    ends_when_cancelled = True

    def __init__(self, spec: OpenEnvEnv, socket: ClientWebSocketResponse) -> None:
        self._spec, self._socket = spec, socket
        self._rewards: list[float] = []

    async def reset(self, task: Task, seed: int) -> str | None:
        values = {**task.columns, "task": task.id, "seed": task.columns.get("seed", seed % 2**31)}
        found = await self._send_message("reset", fill(self._spec.reset, values))
        return observed(found.get("observation"))

    async def call(self, call: ToolCall) -> Step:
        if not self._spec._has_tools:
            return await self._play_action(dict(call.arguments))
        return await self._play_action({"type": "call_tool", "tool_name": call.name, "arguments": dict(call.arguments)})

    async def reply(self, text: str) -> Step:
        assert self._spec.text is not None, "text for a world that takes none"
        return await self._play_action({self._spec.text: text})

    async def _play_action(self, action: dict[str, Any]) -> Step:
        found = await self._send_message("step", action)
        reward = found.get("reward")
        if reward is not None:
            self._rewards.append(float(reward))
        if self._spec._has_tools:
            return Step(_read_result(found.get("observation") or {}), reward, bool(found.get("done")))
        said = observed(found.get("observation"))
        return Step(said if self._spec.speaks else said or "", reward, bool(found.get("done")))

    async def score(self) -> Mapping[str, float]:
        # A reward that was never set is missing: as 0 it would beat every negative one.
        return {"score": sum(self._rewards), "last": self._rewards[-1]} if self._rewards else {}

    async def close(self) -> None:
        if not self._socket.closed:
            await self._socket.send_json({"type": "close"})
            # The server closes once its world has ended. A client that closes first frees its permit too early, and
            # the next world of a server with few sessions finds none free.
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    while not self._socket.closed:
                        await self._socket.receive()
        await self._socket.close()

    async def _send_message(self, kind: str, data: Any) -> dict[str, Any]:
        """Asks the server. Raises ToolFailure for a refused action, RuntimeError for everything else."""
        import aiohttp

        with suppress(ConnectionError):  # the reason why the server closed may still wait to be read
            await self._socket.send_json({"type": kind, "data": data})
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise RuntimeError(f"the session ended ({message.type.name}, {self._socket.close_code})")
        answer = clean_value(json.loads(message.data))
        found: dict[str, Any] = answer.get("data") or {}
        if answer.get("type") != "error":
            return found
        code, words = found.get("code"), found.get("message") or "error"
        if code in _REFUSED and kind == "step":
            told = [str(one.get("msg", one)) for one in found.get("errors") or ()]
            raise ToolFailure(Outcome.TOOL_ERROR, "; ".join([words, *told]))
        hint = "; lower `limits.max_concurrency`" if code == "CAPACITY_REACHED" else ""
        raise RuntimeError(f"{words} ({code}){hint}")


def _calls_tools(action: Mapping[str, Any]) -> bool:
    """Whether an action, by its schema, calls one of the server's MCP tools."""
    properties = action.get("properties") or {}
    return (properties.get("type") or {}).get("const") == "call_tool" and {"tool_name", "arguments"} <= {*properties}


def _read_result(observation: Mapping[str, Any]) -> Any:
    """The result of a tool without its wrappers, which may be OpenEnv's, MCP's or none; an error is its own text."""
    if (error := observation.get("error")) is not None:
        text = error.get("message") if isinstance(error, Mapping) else error
        return ToolOutput(str(text or "the tool failed and does not say why"), is_error=True)
    result = observation.get("result")
    if isinstance(result, Mapping) and isinstance(result.get("content"), list) and "is_error" in result:
        from mcp_types import CallToolResult

        from rlf.apps.servers.runtime import output_of_call

        known = {"content", "structured_content", "is_error"}
        return output_of_call(CallToolResult(**{name: one for name, one in result.items() if name in known}))
    # A world's own observation may have other fields beside: what a tool gave, else all that there is.
    return observed(observation) or "" if result is None else to_text(result)


def observed(observation: Any) -> str | None:
    """An observation as text: its own text, that of its only field, else all of it but the metadata, as JSON."""
    if observation is None or isinstance(observation, str):
        return observation
    if isinstance(observation, Mapping):
        left = {name: value for name, value in observation.items() if name != "metadata" and value is not None}
        if len(left) == 1 and isinstance(text := next(iter(left.values())), str):
            return text
        return json.dumps(left, ensure_ascii=False) if left else None
    return json.dumps(observation, ensure_ascii=False)
