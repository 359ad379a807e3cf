"""Isolation of what models write: Python and SQL, contained at the strongest level that the machine offers."""

from rlf.sandbox.execution import Execution, Outcome, Request, SqlRequest, Table, Usage
from rlf.sandbox.remote import RemoteSandbox
from rlf.sandbox.sandbox import Sandbox, open_sandbox
from rlf.sandbox.spec import Level, LevelChoice, LevelReport, SandboxLimits, SandboxSpec
from rlf.sandbox.warm import probe

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
