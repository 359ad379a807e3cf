"""Isolation of what models write: Python and SQL, contained at the strongest level that the machine offers."""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily
from rlf.sandbox.spec import (
    Execution,
    Level,
    LevelChoice,
    QueryRows,
    Request,
    ResourceUsage,
    SandboxLimits,
    SandboxOutcome,
    SandboxSpec,
    SqlRequest,
)

if TYPE_CHECKING:
    from rlf.sandbox.sandbox import RemoteSandbox, Sandbox, open_sandbox

__all__ = [
    "Execution",
    "Level",
    "LevelChoice",
    "QueryRows",
    "RemoteSandbox",
    "Request",
    "ResourceUsage",
    "Sandbox",
    "SandboxLimits",
    "SandboxOutcome",
    "SandboxSpec",
    "SqlRequest",
    "open_sandbox",
]

__getattr__ = lazily(__name__, dict.fromkeys(("RemoteSandbox", "Sandbox", "open_sandbox"), "sandbox"))
