"""Results that answer again: identical calls of a run or of later ones, and recorded calls of a run that is repeated.

Errors answer no other call; of a recording they do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rlf.core.files import use_wal
from rlf.core.identity import hash_json
from rlf.core.process import cache_folder
from rlf.types import Outcome, ToolResult
from rlf.types.written import read, write

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


# Results kept on disk for later runs: one SQLite file that many processes share. Errors are never kept.
#
# A result is kept as it was before any cut, so that a run with another output budget makes its own cut of it.
# Arguments are kept as a hash alone.

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BUSY_S = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY, tool TEXT NOT NULL, result TEXT NOT NULL, kept REAL NOT NULL
) WITHOUT ROWID
"""


class DiskCache:
    """Reads and writes on one thread of its own. A file that fails costs hits, never a call: it is reported once."""

    def __init__(self, path: Path | None = None) -> None:
        """Takes the file, by default `tool_results.db` among rlf's caches; nothing is opened before it is used."""
        self._path = path
        self._thread: ThreadPoolExecutor | None = None
        self._database: sqlite3.Connection | None = None
        self._is_closed = False

    async def get(self, key: CacheKey) -> ToolResult | None:
        """The kept result, whole; None where there is none."""
        query, row = "SELECT result FROM results WHERE key = ?", (hash_json(list(key)),)
        found = await self._on_thread(lambda: self._open_database().execute(query, row).fetchone())
        try:
            return None if found is None else read(ToolResult, json.loads(found[0]))
        except (ValueError, TypeError, LookupError):  # written by another version: as good as none
            return None

    async def put(self, key: CacheKey, result: ToolResult) -> None:
        """Keeps a result, unless it was too large to be kept whole."""
        if result.truncated and result.original is None:
            return
        row = (hash_json(list(key)), key.tool, json.dumps(write(result), separators=(",", ":")), time.time())
        await self._on_thread(
            lambda: self._open_database().execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", row)
        )

    async def close(self) -> None:
        """Closes the file and ends the thread, off the loop: another process may keep a write waiting."""
        self._is_closed = True
        if self._thread is None:
            return
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._close_database)
        self._thread.shutdown(wait=False)
        await asyncio.shield(closing)

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()

    async def _on_thread(self, work: Callable[[], T]) -> T | None:
        if self._is_closed:
            return None
        self._thread = self._thread or ThreadPoolExecutor(1, "rlf-tool-cache")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError) as fault:
            self._is_closed = True
            logger.warning("%s: cannot be used as a cache of tool results: %s", self._path or "~/.cache", fault)
            return None

    def _open_database(self) -> sqlite3.Connection:
        """One statement is one transaction: no writer holds the lock between two."""
        if self._database is None:
            self._path = self._path or cache_folder() / "tool_results.db"
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            use_wal(self._database, _BUSY_S)
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute(_SCHEMA)
        return self._database
