"""Waits of this process, reported every half minute: a stall has a name.

Calls of tools and requests to models say what they wait for; a collection of trajectories reports it while it plays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

logger = logging.getLogger(__name__)

REPORT_S = 30.0
"""Time between two reports, and the least wait that is reported."""


class Wait(Protocol):
    """One thing that is waited for."""

    @property
    def since(self) -> float:
        """When it began, as `perf_counter` counts."""

    @property
    def what(self) -> str:
        """What it is, e.g. `tool search (train/3/nq-7/0)`; asked for by reports alone."""


_waits: set[Wait] = set()
begin_wait, end_wait = _waits.add, _waits.discard


@dataclass(frozen=True, slots=True, eq=False)
class _NamedWait:
    what: str
    since: float


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Names what is waited for in the block."""
    wait = _NamedWait(what, perf_counter())
    begin_wait(wait)
    try:
        yield
    finally:
        end_wait(wait)


def open_waits() -> list[tuple[float, str]]:
    """Unix time at which each wait began, and what is waited for."""
    now, here = time.time(), perf_counter()
    return [(now - (here - wait.since), wait.what) for wait in list(_waits)]


def describe_waits(least_s: float) -> str | None:
    """Return a sentence about waits of at least so many seconds, the longest first; None without any."""
    now = perf_counter()
    long = sorted((wait.since, wait.what) for wait in list(_waits) if now - wait.since >= least_s)
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
