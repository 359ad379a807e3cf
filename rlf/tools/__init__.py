"""Tools: declared once, called by an executor that nothing hangs."""

from rlf.tools.declaration import CacheScope, CacheSpec, Expectation, ToolDeclaration, ToolTest
from rlf.tools.examples import ExampleRun, run_examples
from rlf.tools.execution.executor import Executor, refuse_misfits
from rlf.tools.kind import TOOL_KINDS, ToolKind, ToolRuntime
from rlf.tools.limits import Limits

__all__ = [
    "TOOL_KINDS",
    "CacheScope",
    "CacheSpec",
    "ExampleRun",
    "Executor",
    "Expectation",
    "Limits",
    "ToolDeclaration",
    "ToolKind",
    "ToolRuntime",
    "ToolTest",
    "refuse_misfits",
    "run_examples",
]
