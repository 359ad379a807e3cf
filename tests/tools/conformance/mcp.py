"""`kind: mcp`: a server of the official SDK, over stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rlf.types import Outcome
from tests.warm import MCP, warm_python

from ._subject import Subject, failing

_SERVER = Path(__file__).parents[1] / "mcp_servers/obedient.py"


@asynccontextmanager
async def _stdio() -> AsyncIterator[Subject]:
    server = {"command": warm_python(*MCP), "args": [str(_SERVER)], "start_timeout_s": 60}
    failures = failing(fail=Outcome.TOOL_ERROR, die=Outcome.UNKNOWN)
    yield Subject({"kind": "mcp", "server": server, "tool": "act"}, failures=failures, image="draw")


SUBJECTS = {"stdio": _stdio}
