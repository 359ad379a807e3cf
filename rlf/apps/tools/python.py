"""`rlf.try_tools`."""

from __future__ import annotations

import asyncio

from rlf.apps.tools import trials
from rlf.apps.tools.trials import ToolTrial
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Spec, as_command, to_parts
from rlf.runs import declared as load


def try_tools(spec: Spec = (), *, runs_folder: AnyPath = DEFAULT_RUNS) -> list[ToolTrial]:
    """Dry runs: each tool is opened, its examples are run, then a fault drill. What falls short is in the results.

    A Python function without an example is called with arguments made from its schema.
    """
    with as_command():
        tools = load.load_tools(*to_parts(spec, "tools", load.TOOL_KEYS, runs_folder))
        return asyncio.run(trials.try_each_tool(tools))
