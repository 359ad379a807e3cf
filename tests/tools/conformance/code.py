"""`kind: code`: a session of Python, at the level that runs on every machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rlf.types import Outcome

from ._subject import State, Subject


@asynccontextmanager
async def _session() -> AsyncIterator[Subject]:
    yield Subject(
        {"kind": "code", "session": True, "sandbox": {"level": "process", "allow_unsafe": True}},
        argument="code",
        say=lambda word: f"print({word!r})",
        hang="import time; time.sleep(60)",
        failures={
            Outcome.TOOL_ERROR: lambda word: f"raise ValueError({word!r})",
        },
        state=State("x = 41", "x + 1", "42"),
    )


SUBJECTS = {"session": _session}
