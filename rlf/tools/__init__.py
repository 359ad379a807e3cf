"""Tools: declared once, called by an executor that nothing hangs. The executor is loaded where it is used."""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily
from rlf.tools.declaration import CacheScope, CacheSpec, Expectation, ToolDeclaration, ToolTest
from rlf.tools.kind import TOOL_KINDS, Limits, ToolKind, ToolRuntime

if TYPE_CHECKING:
    from rlf.tools.examples import ExampleRun, run_examples
    from rlf.tools.execution.executor import Executor, refuse_misfits

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

_EXECUTOR, _EXAMPLES = "execution.executor", "examples"
__getattr__ = lazily(
    __name__,
    {"Executor": _EXECUTOR, "refuse_misfits": _EXECUTOR, "ExampleRun": _EXAMPLES, "run_examples": _EXAMPLES},
)
