"""The gate in front of code that is not rlf's own: what a spec names and rlf imports or starts.

Whatever runs such code calls `about_to_run` first. A command that only looks has it announced, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from rlf.core.errors import RlfError


class NotRun(RlfError):
    """Foreign code was not run, so its result is unknown."""


@dataclass(frozen=True, slots=True)
class _Gate:
    announce: Callable[[str], None] | None
    """Takes what is about to run; None refuses it."""
    announced: set[str] = field(default_factory=set)


_GATE: ContextVar[_Gate | None] = ContextVar("foreign_code", default=None)


@contextmanager
def foreign_code(announce: Callable[[str], None] | None) -> Iterator[None]:
    """Has foreign code announced before it first runs within the block; None: refused with NotRun."""
    token = _GATE.set(_Gate(announce))
    try:
        yield
    finally:
        _GATE.reset(token)


def about_to_run(what: str) -> None:
    """Announces foreign code, e.g. `import tools/search.py`. Raises NotRun where it may not run."""
    gate = _GATE.get()
    if gate is None or what in gate.announced:
        return
    if gate.announce is None:
        raise NotRun(f"this check must {what}, which --no-import forbids. Remove --no-import to run the check.")
    gate.announced.add(what)
    gate.announce(what)
