"""Calls whose results are kept: recorded and played back in place of the tools, or in a file that several runs share.

A recording holds each call with its result, one JSON object a line. Calls are matched by trajectory, tool and
arguments; the n-th identical call of a trajectory has the n-th result. A run that was resumed plays some trajectories
again: of each, the latest session's calls count. A call that the recording lacks ends the run: an invented result would
make it another run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from rlf.core import RlfError, RunError
from rlf.core.files import use_wal
from rlf.core.identity import hash_json
from rlf.core.process import cache_folder
from rlf.core.text import shorten
from rlf.tools.execution.cache import CacheKey, canonical_arguments
from rlf.types import ToolResult
from rlf.types.written import VERSION, read, write

logger = logging.getLogger(__name__)

_FIX = "Use the spec, data and model of the recorded run, or call the tools: no --replay, or reproduce with --live."


class ReplayMiss(RunError):
    """A replayed run makes a call that the recording lacks."""


class AnsweredCall(NamedTuple):
    """The identity of a call among those of a run."""

    trajectory_id: str
    tool: str
    arguments: str
    """As `arguments_text` writes them."""


class Tape:
    """Recorded calls in their order, whose results come in place of the tools'."""

    def __init__(self, calls: Iterable[tuple[AnsweredCall, ToolResult]]) -> None:
        self._left: dict[AnsweredCall, deque[ToolResult]] = defaultdict(deque)
        for call, result in calls:
            self._left[call].append(result)

    def answer(self, call: AnsweredCall) -> ToolResult:
        """The recorded result of the next such call. Raises ReplayMiss, which names what differs."""
        results = self._left.get(call)
        if not results:
            raise ReplayMiss(f"{self._describe_difference(call)} {_FIX}")
        return results.popleft()

    def _describe_difference(self, call: AnsweredCall) -> str:
        message = f"replay: trajectory {call.trajectory_id!r} calls {shorten(f'{call.tool} {call.arguments}')}"
        if call in self._left:
            return f"{message} more often than the recording."
        mine = [known for known in self._left if known.trajectory_id == call.trajectory_id]
        if not mine:
            return f"{message}; the recording has no call of that trajectory."
        left = [f"{known.tool} {known.arguments}" for known in mine if self._left[known]]
        return f"{message}; the recording has {shorten(' and '.join(left)) or 'no further call'} there."


class TapeWriter:
    """Appends calls to a file as they end."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._session = 1
        if path.is_file():
            self._session += max((line.session for line in _read_lines(path)), default=0)
            with path.open("rb+") as file:  # a kill may have left a part of a line behind the last whole one
                file.truncate(file.read().rfind(b"\n") + 1)
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def add(self, call: AnsweredCall, result: ToolResult) -> None:
        """Writes one call; it is safe from a killed process when this returns."""
        line = {"version": VERSION, "session": self._session, **call._asdict(), "result": write(result)}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def read_tape(path: Path) -> Tape:
    """Reads what a TapeWriter wrote. Raises RlfError."""
    return Tape(read_taped_calls(path))


def read_taped_calls(path: Path) -> list[tuple[AnsweredCall, ToolResult]]:
    """The calls that a TapeWriter wrote. Raises RlfError."""
    lines = _read_lines(path)
    latest = {line.trajectory_id: line.session for line in lines}
    calls = [line for line in lines if line.session == latest[line.trajectory_id]]
    return [(AnsweredCall(line.trajectory_id, line.tool, line.arguments), line.result) for line in calls]


def _read_lines(path: Path) -> list[_Line]:
    """Every line of a recording but one that a kill cut short."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise RlfError(f"{path}: cannot be read as a recording of tool calls: {fault}") from fault
    return [_read_recorded_line(path, number, line) for number, line in enumerate(lines[:-1], 1)]


@dataclass(frozen=True, slots=True)
class _Line:
    """A recorded call in the file."""

    session: int
    """Counts the processes that wrote to the file."""
    trajectory_id: str
    tool: str
    arguments: str
    result: ToolResult
    version: int = 2
    """Of the written form; before 3 a line did not say."""


def _read_recorded_line(path: Path, number: int, text: str) -> _Line:
    try:
        return read(_Line, json.loads(text))
    except (ValueError, TypeError, LookupError) as fault:
        raise RlfError(f"{path}:{number}: not a recorded tool call: {fault}") from fault


def arguments_text(arguments: Any) -> str:
    """The same text for the same arguments; all that have no canonical JSON share one."""
    return canonical_arguments(arguments) or "null"


# Results kept on disk for later runs: one SQLite file that many processes share. Errors are never kept.
#
# A result is kept as it was before any cut, so that a run with another output budget makes its own cut of it.
# Arguments are kept as a hash alone.

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
