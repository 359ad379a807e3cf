"""Isolation of what models write: Python and SQL, contained at the strongest level that the machine offers."""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily

if TYPE_CHECKING:
    from rlf.sandbox.execution import Execution, Outcome, Request, SqlRequest, Table, Usage
    from rlf.sandbox.remote import RemoteSandbox
    from rlf.sandbox.sandbox import Sandbox, open_sandbox
    from rlf.sandbox.spec import Level, LevelChoice, LevelReport, SandboxLimits, SandboxSpec
    from rlf.sandbox.warm import probe

_HOMES = {
    "execution": ("Execution", "Outcome", "Request", "SqlRequest", "Table", "Usage"),
    "remote": ("RemoteSandbox",),
    "sandbox": ("Sandbox", "open_sandbox"),
    "spec": ("Level", "LevelChoice", "LevelReport", "SandboxLimits", "SandboxSpec"),
    "warm": ("probe",),
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
