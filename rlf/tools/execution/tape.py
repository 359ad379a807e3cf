"""Recorded calls, and their results played back in place of the tools: a run that can be repeated.

A recording holds each call with its result, one JSON object a line. Calls are matched by trajectory, tool and
arguments; the n-th identical call of a trajectory has the n-th result. A run that was resumed plays some trajectories
again: of each, the latest session's calls count. A call that the recording lacks ends the run: an invented result would
make it another run.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from rlf.core import RlfError, RunError
from rlf.core.text import shorten
from rlf.tools.execution.cache import canonical_arguments
from rlf.types import ToolResult
from rlf.types.written import VERSION, read, write

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
