"""Results kept on disk for later runs: one SQLite file that many processes share. Errors are never kept.

A result is kept as it was before any cut, so that a run with another output budget makes its own cut of it.
Arguments are kept as a hash alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rlf.core.files import use_wal
from rlf.core.identity import hash_json
from rlf.core.process import cache_folder
from rlf.tools.execution.cache import CacheKey
from rlf.types import ToolResult
from rlf.types.written import read, write

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
        text = await self._on_thread(lambda: self._read_row(key))
        try:
            return None if text is None else read(ToolResult, json.loads(text))
        except (ValueError, TypeError, LookupError):  # written by another version: as good as none
            return None

    async def put(self, key: CacheKey, result: ToolResult) -> None:
        """Keeps a result, unless it was too large to be kept whole."""
        if result.truncated and result.original is None:
            return
        stored = json.dumps(write(result), separators=(",", ":"))
        await self._on_thread(lambda: self._write_row(key, stored))

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

    def _read_row(self, key: CacheKey) -> str | None:
        found = (
            self._open_database()
            .execute("SELECT result FROM results WHERE key = ?", (hash_json(list(key)),))
            .fetchone()
        )
        return None if found is None else str(found[0])

    def _write_row(self, key: CacheKey, stored: str) -> None:
        row = (hash_json(list(key)), key.tool, stored, time.time())
        self._open_database().execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", row)

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
