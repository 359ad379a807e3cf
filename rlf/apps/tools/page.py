"""What the page shows and does of tools, each in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.apps.tools import trials
from rlf.core.errors import RlfError
from rlf.python.specs import Tool
from rlf.runs import declared as load


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A tool file's tool, or why there is none."""

    file: str
    tool: Tool | None
    fault: str


def list_tools(files: Sequence[str]) -> list[DeclaredTool]:
    """The tools of each file, or its faults."""
    found = list[DeclaredTool]()
    for file in files:
        try:
            found += [DeclaredTool(file, Tool.of(tool), "") for tool in load.load_tools([Path(file)])]
        except RlfError as error:
            found.append(DeclaredTool(file, None, str(error)))
    return found


def show_tool(file: str, name: str, spec: str | None) -> Tool:
    """`rlf tools show`: a tool with its prompt in a spec's format."""
    tool = load.tool_named(load.load_tools([Path(file)]), name)
    return Tool.of(tool, prompts=() if spec is None else (trials.render_tool(name, Path(spec)),))


def call_tool(file: str, name: str | None, arguments: Mapping[str, Any]) -> trials.CalledTool:
    """One call, as the model would make it; without a name, of a file with one tool."""
    tools = load.load_tools([Path(file)])
    if name is None and len(tools) > 1:
        raise RlfError(f"{file}: declares {', '.join(tool.name for tool in tools)}. Name one of them.")
    return asyncio.run(trials.call_as_model(tools, name or tools[0].name, arguments))


TASKS = (list_tools, show_tool, call_tool)
