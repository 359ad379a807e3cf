"""The tool calls of one turn, run side by side, and what a trajectory keeps of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rlf.types.tool import Outcome, ToolResult
from rlf.types.trajectory import CallRecord
from rlf.types.world import Episode

NOT_RUN = ToolResult(Outcome.LIMIT_REACHED, "The trajectory ended with this turn; the call was not run.")
_WAITED = ToolResult(Outcome.CANCELLED, "The trajectory was cancelled while the call waited to run.")

Invoke = Callable[[int], Awaitable[ToolResult]]
"""Runs the call at a place of its turn."""


async def run_calls(records: list[CallRecord], places: Sequence[int], invoke: Invoke, world: Episode | None) -> None:
    """Runs the calls at `places` side by side, the world's own in their order; each result goes into its record."""
    if len(places) == 1:
        return await _run_into(records, places, invoke)
    own = [] if world is None else [place for place in places if world.owns(records[place].call.name)]
    lines = [own, *([place] for place in places if place not in own)]
    running = [_run_into(records, line, invoke) for line in lines if line]
    for fault in await asyncio.gather(*running, return_exceptions=True):  # which waits for all that are cancelled
        if fault is not None:
            raise fault
    return None


async def _run_into(records: list[CallRecord], places: Sequence[int], invoke: Invoke) -> None:
    """Runs calls one after the other; each result goes into its record, also that of a cancelled call."""
    for place in places:
        call, started = records[place].call, time.perf_counter()
        try:
            records[place] = CallRecord(call, await invoke(place))
        except asyncio.CancelledError as cancelled:
            interrupted = [each for each in cancelled.args if isinstance(each, ToolResult)]
            waited_s = time.perf_counter() - started
            records[place] = CallRecord(call, interrupted[0] if interrupted else replace(_WAITED, queue_s=waited_s))
            raise


def find_broken(records: Sequence[CallRecord]) -> CallRecord | None:
    """The first call that failed for a reason outside the policy."""
    return next((record for record in records if record.result.outcome.is_infrastructure), None)


def infrastructure_error(records: Sequence[CallRecord]) -> str | None:
    """The error of a trajectory that such a call ends."""
    broken = find_broken(records)
    return None if broken is None else f"tool {broken.call.name!r}: {broken.result.outcome}: {broken.result.text}"
