"""`rlf.try_tools`, and what commands say of tools."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rlf.apps.tools import trials
from rlf.apps.tools.trials import ToolPrompt, ToolTrial
from rlf.python.specs import Files, as_command, to_paths
from rlf.python.tools import Tool
from rlf.runs import tools as load


@dataclass(frozen=True, slots=True)
class ListedTool(Tool):
    """A tool with the file that declares it."""

    file: Path


@dataclass(frozen=True, slots=True)
class ShownTool(Tool):
    """A tool as the models of specs read it."""

    prompts: tuple[ToolPrompt, ...]


def try_tools(files: Files = ()) -> list[ToolTrial]:
    """Dry runs: each tool is opened, its examples are run, then a fault drill. What falls short is in the results.

    A Python function without an example is called with arguments made from its schema.
    """
    with as_command():
        return asyncio.run(trials.try_tools(load.load_tools(to_paths(files))))
