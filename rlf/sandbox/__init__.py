"""Isolation of what models write: Python and SQL, contained at the strongest level that the machine offers."""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily

if TYPE_CHECKING:
    from rlf.sandbox.fork_servers import probe
    from rlf.sandbox.sandbox import RemoteSandbox, Sandbox, open_sandbox
    from rlf.sandbox.spec import (
        Execution,
        Level,
        LevelChoice,
        LevelReport,
        Outcome,
        Request,
        SandboxLimits,
        SandboxSpec,
        SqlRequest,
        Table,
        Usage,
    )

_HOMES = {
    "sandbox": ("RemoteSandbox", "Sandbox", "open_sandbox"),
    "spec": (
        "Execution",
        "Level",
        "LevelChoice",
        "LevelReport",
        "Outcome",
        "Request",
        "SandboxLimits",
        "SandboxSpec",
        "SqlRequest",
        "Table",
        "Usage",
    ),
    "fork_servers": ("probe",),
}

__all__ = [
    "Execution",
    "Level",
    "LevelChoice",
    "LevelReport",
    "Outcome",
    "RemoteSandbox",
    "Request",
    "Sandbox",
    "SandboxLimits",
    "SandboxSpec",
    "SqlRequest",
    "Table",
    "Usage",
    "open_sandbox",
    "probe",
]

__getattr__ = lazily(__name__, {name: home for home, names in _HOMES.items() for name in names})
