"""`rlf.load_tools`: declared tools, called through the executor that training uses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rlf.core.plain_json import Jsonable
from rlf.core.text import clean_value
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Spec, as_command, to_parts
from rlf.runs import declared as load
from rlf.tools import ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.types import ToolCall, ToolDescription, ToolResult


@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """One tool in a spec's chat format."""

    format: str
    text: str
    """The prompt of a question with this tool alone, special tokens included."""
    num_tokens: int
    """Of that prompt."""
    num_added: int
    """How many of them the tool adds to the prompt of the same question without tools."""


@dataclass(frozen=True, slots=True)
class Tool(Jsonable):
    """A declared tool. What it calls may hold credentials, and is not shown."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(metadata={"json": "inputSchema"})
    kind: str
    timeout_s: float
    num_tests: int
    """Examples under its `tests:`."""
    declaration: ToolDeclaration = field(repr=False, metadata={"json": None})
    file: Path | None = field(default=None, metadata={"optional": True})
    """The file that declares it, of a tool that `rlf tools list` lists."""
    prompts: tuple[ToolPrompt, ...] | None = field(default=None, metadata={"optional": True})
    """How the models of specs read it, of a tool that `rlf tools show` shows."""

    @classmethod
    def of(
        cls, tool: ToolDeclaration, *, file: Path | None = None, prompts: tuple[ToolPrompt, ...] | None = None
    ) -> Self:
        """A declaration without credentials."""
        facts = (tool.name, tool.description, tool.input_schema, tool.target.kind, tool.limits.timeout_s)
        return cls(*facts, len(tool.tests), tool, file, prompts)

    def call(self, arguments: Mapping[str, Any] | None = None, **named: Any) -> ToolResult:
        """One call, as the model would make it: limits hold, and a failure is a result with its outcome.

        Args:
            arguments: the call's arguments; or give them by name.
        """
        with as_command():
            return asyncio.run(self._call(clean_value({**(arguments or {}), **named})))

    async def _call(self, arguments: dict[str, Any]) -> ToolResult:
        async with Executor([self.declaration]) as executor:
            return await executor.invoke(ToolCall(self.name, arguments), trajectory_id="call")

    def for_model(self) -> ToolDescription:
        """The tool's description as the model sees it."""
        return self.declaration.description_for_model


def load_tools(spec: Spec = (), *, runs_folder: AnyPath = DEFAULT_RUNS) -> list[Tool]:
    """The tools of a spec, or of several and of tool files, each once; without any, of every file in `tool_specs`.

    Raises:
        SpecError: with every fault of every file.
    """
    with as_command():
        return [Tool.of(tool) for tool in load.load_tools(*to_parts(spec, "tools", load.TOOL_KEYS, runs_folder))]
