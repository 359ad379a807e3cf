"""What this process waits for, reported every half minute: a stall has a name.

Calls of tools and requests to models say what they wait for; a collection of trajectories reports it while it plays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

logger = logging.getLogger(__name__)

REPORT_S = 30.0
"""Time between two reports, and the least wait that is reported."""
_waits: dict[int, _Wait] = {}


class _Wait:
    """What is waited for, from `with` to its end; a class, since every call of a tool makes one."""

    __slots__ = ("since", "what")

    def __init__(self, what: str) -> None:
        self.what, self.since = what, 0.0

    def __enter__(self) -> None:
        self.since = monotonic()
        _waits[id(self)] = self

    def __exit__(self, *_exc: object) -> None:
        del _waits[id(self)]


def waiting_for(what: str) -> _Wait:
    """Names what is waited for, e.g. `tool search (train/3/nq-7/0)`."""
    return _Wait(what)


def open_waits() -> list[tuple[float, str]]:
    """Unix time at which each wait began, and what is waited for."""
    now, here = time.time(), monotonic()
    return [(now - (here - wait.since), wait.what) for wait in list(_waits.values())]


def describe_waits(least_s: float) -> str | None:
    """Return a sentence about waits of at least so many seconds, the longest first; None without any."""
    now = monotonic()
    long = sorted((wait.since, wait.what) for wait in list(_waits.values()) if now - wait.since >= least_s)
    if not long:
        return None
    since, what = long[0]
    others = f", and for {len(long) - 1} more" if len(long) > 1 else ""
    return f"waiting for {what} for {now - since:.0f} s{others}"


@asynccontextmanager
async def reporting_waits(interval_s: float = REPORT_S) -> AsyncIterator[None]:
    """Logs every so often what has been waited for as long."""

    async def report() -> None:
        while True:
            await asyncio.sleep(interval_s)
            if (text := describe_waits(interval_s)) is not None:
                logger.warning("%s", text)

    reporter = asyncio.create_task(report())
    try:
        yield
    finally:
        reporter.cancel()
