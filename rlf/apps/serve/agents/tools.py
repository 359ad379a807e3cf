"""What an agent reaches over MCP: the spec's tools, and the tools of its trajectory's own world.

The world is the trajectory's, as in rlf's own loop: it is reset before the agent starts, steps from one call of the
model to the next, and is scored when the agent is over. One that answers what the model says has a further tool for
words, and hears the agent's answer as its last ones.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from rlf import __version__
from rlf.apps.serve.requests import Refusal
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import OVER_LIMIT, Rollout, call_with_images, find_broken
from rlf.tools.mcp.server import OUTCOME, SERVER_NAME
from rlf.types.tool import Outcome, ToolCall, ToolDescription, ToolResult
from rlf.types.trajectory import CallRecord, MissingRewardCause, Turn
from rlf.types.world import WorldFailure, WorldStep, shown_tools

Json = dict[str, Any]
_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol, the latest first: those in which a request has one answer and no state of its own."""
_NO_METHOD = -32601
BAD_PARAMS = -32602
_SAY = "say_to_user"
_SAY_TOOL = ToolDescription(
    _SAY,
    "Say something to the user. The result is what the user answers.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)
_SILENT = "The conversation is over."


class SessionTools:
    """The tools of one trajectory."""

    def __init__(self, rollout: Rollout, setting: Setting) -> None:
        self.world = None if setting.worlds is None else setting.worlds.open(rollout.id, rollout.task)
        self.broken: MissingRewardCause | None = None
        """The first call that failed for a reason outside the policy."""
        self._id, self._tools, self._limit = rollout.id, setting.tools, setting.limits.max_tool_calls
        self._shown = tuple(shown_tools(setting.worlds, setting.tools.descriptions, rollout.task))
        self._speaks = self.world is not None and self.world.speaks
        if self._speaks:
            self._shown += (_SAY_TOOL,)
        self._said: WorldStep | None = None
        """What was done to the world up to its latest words, until it is taken."""
        self._is_silent = False
        """Whether the world had no words left."""
        self._num_calls = 0
        self._line = asyncio.Lock()
        """Of the world's calls: each meets the state that the one before it left."""
        self._running: set[asyncio.Task[Any]] = set()

    async def call(self, call: ToolCall, images: Sequence[str]) -> ToolResult:
        """Runs a call. Args: images: for tools that work on one."""
        if all(tool.name != call.name for tool in self._shown):
            known = ", ".join(tool.name for tool in self._shown) or "none"
            return ToolResult(Outcome.UNKNOWN_TOOL, f"no tool {call.name!r:.80} (known: {known})")
        if self._limit is not None and self._num_calls >= self._limit:
            return OVER_LIMIT
        self._num_calls += 1
        running = asyncio.current_task()
        assert running is not None, "a call outside of a request"
        self._running.add(running)
        try:
            if self._speaks and call.name == _SAY:
                async with self._line:
                    result = await self._say(call.arguments.get("text"))
            else:
                is_own = self.world is not None and self.world.owns(call.name)
                async with self._line if is_own else nullcontext():
                    result = await call_with_images(self._tools, call, images, trajectory_id=self._id)
        finally:
            self._running.discard(running)
        self.broken = self.broken or find_broken([CallRecord(call, result)])
        return result

    async def _say(self, words: Any) -> ToolResult:
        if not isinstance(words, str):
            return ToolResult(Outcome.TOOL_ERROR, f"error: text: got {words!r:.60}; expected text")
        try:
            reply = await self.hear(words)
        except WorldFailure as fault:
            return ToolResult(Outcome.GONE if fault.is_gone else Outcome.INFRA, str(fault))
        return ToolResult(Outcome.OK, _SILENT if reply is None else reply)

    async def hear(self, words: str) -> str | None:
        """What a world that answers words says to these; None where it has none left. Raises WorldFailure."""
        if self.world is None or not self._speaks or self._is_silent:
            return None
        await self.world.reply(words)
        step = self.world.take_step()
        self._is_silent = step.is_over or step.reply is None
        step = replace(step, is_over=self._is_silent)
        self._said = step if self._said is None else add_steps(self._said, step)
        return step.reply

    def take_step(self) -> WorldStep | None:
        """What was done to the world since the last step was taken; None without one."""
        if self.world is None:
            return None
        step, said = self.world.take_step(), self._said
        self._said = None
        return step if said is None else add_steps(said, step)

    async def settle(self) -> None:
        """Ends the calls that are under way: nobody waits for them any more, and the world is to be scored."""
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def close(self) -> None:
        """Gives back what tools and the world hold."""
        try:
            await self.settle()
            await self._tools.end_trajectory(self._id)
        finally:
            if self.world is not None:
                await self.world.close()

    def answer(self, method: str, params: Mapping[str, Any]) -> Json:
        """The result of a request that calls no tool. Raises Refusal, whose status is that of JSON-RPC."""
        if method == "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": SERVER_NAME, "version": __version__},
            }
        if method == "tools/list":
            shown = (
                {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.input_schema)}
                for tool in self._shown
            )
            return {"tools": list(shown)}
        if method == "ping":
            return {}
        raise Refusal(_NO_METHOD, f"there is no method {method!r:.60}")


def add_steps(before: WorldStep, now: WorldStep) -> WorldStep:
    """Two steps of a world as one."""
    reward = before.reward if now.reward is None else (before.reward or 0.0) + now.reward
    reply = before.reply if now.reply is None else now.reply
    return WorldStep(before.changes + now.changes, reward, reply, before.is_over or now.is_over)


def as_spoken(turns: Sequence[Turn]) -> Iterator[Turn]:
    """The turns of an agent as a world that answers words knows them: calls of its tool are turns of words."""
    for turn in turns:
        said = [one.call for one in turn.calls if one.call.name == _SAY or one.call.name.endswith(f"_{_SAY}")]
        if not said:
            yield turn
            continue
        if others := tuple(one for one in turn.calls if one.call not in said):
            yield replace(turn, calls=others)
        for call in said:
            yield replace(turn, text=str(call.arguments.get("text", "")), calls=(), failures=())


def read_rpc_call(params: Mapping[str, Any]) -> ToolCall:
    """The call of a request. Raises Refusal, whose status is that of JSON-RPC."""
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Refusal(BAD_PARAMS, "expected params with a text `name` and an object `arguments`")
    return ToolCall(name, arguments)


def show_result(result: ToolResult) -> Json:
    """A result in MCP's words: the text is what rlf's own loop shows to the model."""
    files = [(base64.b64encode(image.data).decode(), image.mime_type) for image in result.images]
    images = [{"type": "image", "data": data, "mimeType": kind} for data, kind in files]
    content = [{"type": "text", "text": result.text}, *images]
    return {"content": content, "isError": result.outcome is not Outcome.OK, "_meta": {OUTCOME: result.outcome.value}}
