"""`kind: python`: on the loop, on threads, in processes, and a class."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rlf.types import Outcome

from ._subject import State, Subject, failing

_FUNCTIONS = Path(__file__).parents[1] / "obedient.py"
_FAILURES = failing(fail=Outcome.TOOL_ERROR, refused=Outcome.UNREACHABLE)


@asynccontextmanager
async def _in(name: str, state: State | None = None, **target: Any) -> AsyncIterator[Subject]:
    whole: Mapping[str, Any] = {"kind": "python", "callable": f"{_FUNCTIONS}:{name}", **target}
    yield Subject(whole, failures=_FAILURES, state=state, image="draw")


SUBJECTS = {
    "loop": lambda: _in("act_on_loop"),
    "thread": lambda: _in("act", isolation="thread"),
    "process": lambda: _in("act", isolation="process"),
    "class": lambda: _in("Actor", State("keep 7", "recall", "7")),
}
