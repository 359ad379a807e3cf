"""`rlf.try_tools`."""

from __future__ import annotations

import asyncio

from rlf.apps.tools import trials
from rlf.apps.tools.trials import ToolTrial
from rlf.python.specs import Files, as_command, to_paths
from rlf.runs import tools as load


def try_tools(files: Files = ()) -> list[ToolTrial]:
    """Dry runs: each tool is opened, its examples are run, then a fault drill. What falls short is in the results.

    A Python function without an example is called with arguments made from its schema.
    """
    with as_command():
        return asyncio.run(trials.try_tools(load.load_tools(to_paths(files))))
