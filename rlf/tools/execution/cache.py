"""Results that answer again: identical calls of a run or of later ones, and recorded calls of a run that is repeated.

Errors answer no other call; of a recording they do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from rlf.types import Outcome, ToolResult

MAX_RESULTS = 20_000
"""Results kept; beyond that the oldest goes."""
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


class CacheKey(NamedTuple):
    """The key of a result: calls with the same one have one result."""

    tool: str
    source_hash: str
    arguments: str
    """Canonical JSON."""


def canonical_arguments(arguments: Mapping[str, Any]) -> str | None:
    """The same text for the same arguments in any order; None when they have no canonical JSON (NaN)."""
    try:
        return _encode(arguments)
    except (ValueError, TypeError, RecursionError):
        return None


class RunCache:
    """Kept in memory for one run. Calls that are the same and in flight together become one call."""

    def __init__(self) -> None:
        self._kept: dict[CacheKey, ToolResult] = {}
        """As they answer again."""
        self._in_flight: dict[CacheKey, asyncio.Future[ToolResult]] = {}

    async def get(self, key: CacheKey, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """The kept result, or that of the same call in flight, or a new one.

        Who joins a call in flight shares its error too, but not its cancellation: then one of them calls again.
        """
        while True:
            if key in self._kept:
                return self._kept[key]
            leader = self._in_flight.get(key)
            if leader is None:
                return await self._run_first(key, run)
            await asyncio.wait((leader,))
            if not leader.cancelled():
                return _mark_cached(leader.result())

    async def _run_first(self, key: CacheKey, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        future: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._in_flight[key] = future
        try:
            result = await run()
            if result.outcome is Outcome.OK:
                if len(self._kept) >= MAX_RESULTS:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = _mark_cached(result)
            future.set_result(result)
            return result
        finally:
            del self._in_flight[key]
            future.cancel()


def _mark_cached(result: ToolResult) -> ToolResult:
    return replace(result, cached=True, attempts=(), queue_s=0.0, run_s=0.0, usage={})
