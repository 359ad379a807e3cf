"""Disturbances of tools and worlds, as `rlf.tools.kind` declares them.

They stand between the loop and the tools, so that tools and worlds are disturbed alike, and what is carried out and
recorded has the declared names: rewards, golds and worlds see what they always see. What a trajectory meets is drawn
from its task, the call, and how often it was made before. So a group's rollouts meet the same, an evaluation meets the
same again, and a prefix that is played again does too.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlf.core.identity import hash_json
from rlf.tools.kind import Faults
from rlf.types.tool import Outcome, ToolCall, ToolDescription, ToolResult

_VERSION = "2"
_UNKNOWN = "unknown_"
"""Before a name that means nothing. A declared one must not be reached by the name that it has elsewhere."""
FAILURES = (
    "503 Service Unavailable: overloaded, try again",
    "500 Internal Server Error",
    "502 Bad Gateway",
    "429 Too Many Requests: slow down",
    "connection reset by peer",
    "rate limit exceeded, retry later",
    "the service is being restarted",
    "temporarily unavailable",
)
"""What a failed call is answered by. A policy that meets one text only learns that text."""
_NOISE = (
    "[info] request 8f31c2 accepted\n[warn] cache is 14 minutes old\n",
    "\n[info] request 8f31c2 served in 41 ms, 0 retries",
)


class Disturbed:
    """The tools of one trajectory under disturbances: what they look like, what a call means, how it ends."""

    def __init__(self, faults: Faults, task_id: str, tools: Sequence[ToolDescription]) -> None:
        self._faults, self._task_id = faults, task_id
        self._is_renamed = self._draws(faults.renamed, "renamed")
        self._is_nested = self._draws(faults.nested, "nested")
        self._times: Counter[str] = Counter()
        self._tools = {self._name(tool.name): tool for tool in tools}
        """By the names that the model sees."""

    @property
    def tools(self) -> tuple[ToolDescription, ...]:
        """What the model sees."""
        return tuple(self._describe(tool) for tool in self._tools.values())

    def restore(self, call: ToolCall) -> ToolCall:
        """The declared call that a written one means; parts that mean nothing have names that are nobody's."""
        tool = self._tools.get(call.name)
        if tool is None:
            return replace(call, name=_UNKNOWN + call.name)
        arguments = dict(call.arguments)
        if self._is_nested:
            request, version = arguments.pop("request", None), arguments.pop("version", None)
            if not isinstance(request, Mapping) or version != _VERSION:
                return ToolCall(tool.name, {_UNKNOWN + name: value for name, value in call.arguments.items()})
            arguments = {**{_UNKNOWN + name: value for name, value in arguments.items()}, **request}
        if self._is_renamed:
            names = {self._name(name): name for name in tool.input_schema.get("properties", {})}
            arguments = {names.get(name, _UNKNOWN + name): value for name, value in arguments.items()}
        return ToolCall(tool.name, arguments)

    async def invoke(self, call: ToolCall, carry_out: Callable[[ToolCall], Awaitable[ToolResult]]) -> ToolResult:
        """The result of a restored call."""
        shown = {tool.name: name for name, tool in self._tools.items()}
        if call.name not in shown:
            written, known = call.name.removeprefix(_UNKNOWN), ", ".join(self._tools) or "none"
            return ToolResult(Outcome.UNKNOWN_TOOL, f"no tool {written!r:.80} (known: {known})")
        tool = self._tools[shown[call.name]]
        if strange := [name for name in call.arguments if name.startswith(_UNKNOWN)]:
            known = ", ".join(self._describe(tool).input_schema.get("properties", {}))
            written = ", ".join(name.removeprefix(_UNKNOWN) for name in strange)
            text = f"invalid arguments for {shown[call.name]}: got {written:.80}; expected {known}"
            return ToolResult(Outcome.INVALID_ARGUMENTS, text)
        key = hash_json([call.name, dict(call.arguments)])
        self._times[key] += 1
        drawn = (key, self._times[key])
        # Slept here and not in the tool: its permits, deadline and breaker are about what it does itself.
        await asyncio.sleep(self._faults.latency_s)
        if self._draws(self._faults.timeouts, "timeouts", *drawn):
            return ToolResult(Outcome.TIMEOUT, "no answer in time", run_s=self._faults.latency_s)
        if self._draws(self._faults.errors, "errors", *drawn):
            text = random.Random(hash_json([self._task_id, "failure", *drawn])).choice(FAILURES)
            return ToolResult(Outcome.TOOL_ERROR, text)
        return self._change(await carry_out(call), tool, drawn)

    def _change(self, result: ToolResult, tool: ToolDescription, drawn: tuple[str, int]) -> ToolResult:
        """What is left of a result."""
        text = result.text
        if result.outcome is Outcome.INVALID_ARGUMENTS and self._is_renamed:
            # The complaint names what is declared, which would give the names away.
            own = {name: self._name(name) for name in (tool.name, *tool.input_schema.get("properties", {}))}
            text = re.sub(r"\w+", lambda word: own.get(word[0], word[0]), text)
        if result.outcome is Outcome.OK:
            if self._draws(self._faults.truncated, "truncated", *drawn):
                text = text[: (len(text) + 1) // 2]
            if self._draws(self._faults.noisy, "noisy", *drawn):
                text = text.join(_NOISE)
        return result if text == result.text else replace(result, text=text, structured=None)

    def _draws(self, share: float, *what: object) -> bool:
        return random.Random(hash_json([self._task_id, *what])).random() < share

    def _name(self, name: str) -> str:
        return f"f_{hash_json([self._task_id, name])[:6]}" if self._is_renamed else name

    def _describe(self, tool: ToolDescription) -> ToolDescription:
        """A tool as the model sees it."""
        schema = dict(tool.input_schema)
        if self._is_renamed:
            schema["properties"] = {self._name(name): one for name, one in schema.get("properties", {}).items()}
            if "required" in schema:
                schema["required"] = [self._name(name) for name in schema["required"]]
        if self._is_nested:
            top: dict[str, Any] = {
                name: schema.pop(name) for name in ("$defs", "definitions", "$schema") if name in schema
            }
            properties = {"request": schema, "version": {"type": "string", "enum": [_VERSION]}}
            schema = {**top, "type": "object", "properties": properties, "required": ["request", "version"]}
        return replace(tool, name=self._name(tool.name), input_schema=schema)
