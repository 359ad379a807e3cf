"""Tools: declared once, called by an executor that nothing hangs. The executor is loaded where it is used."""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily
from rlf.tools.declaration import CacheScope, CacheSpec, Expectation, ToolDeclaration, ToolTest
from rlf.tools.kind import TOOL_KINDS, Limits, ToolKind, ToolRuntime

if TYPE_CHECKING:
    from rlf.tools.execution.executor import Executor, refuse_misfits

__all__ = [
    "TOOL_KINDS",
    "CacheScope",
    "CacheSpec",
    "Executor",
    "Expectation",
    "Limits",
    "ToolDeclaration",
    "ToolKind",
    "ToolRuntime",
    "ToolTest",
    "refuse_misfits",
]

__getattr__ = lazily(__name__, dict.fromkeys(("Executor", "refuse_misfits"), "execution.executor"))
