"""Calls of a sandbox and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rlf.sandbox.spec import Level, SandboxLimits


class Outcome(StrEnum):
    """How a call ended. Exactly one, never an exception."""

    OK = "ok"
    """It ran to its end."""
    ERROR = "error"
    """The code raised, or the query is wrong."""
    TIMEOUT = "timeout"
    """Its time was up: wall or processor."""
    MEMORY = "memory"
    """It needed more memory than it may use."""
    OUTPUT_LIMIT = "output_limit"
    """It wrote more than is kept."""
    KILLED = "killed"
    """Its process ended before it answered, by its own doing or for too much on the disk."""
    INFRA = "infra"
    """The sandbox failed, not the code: a process killed from outside, a session ended for room, a host gone."""


@dataclass(frozen=True, slots=True)
class Request:
    """Python to run."""

    source: str
    stdin: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content by relative name, written to the working folder first."""
    fetch: tuple[str, ...] = ()
    """Names or glob patterns of files to bring back from the working folder."""
    limits: SandboxLimits | None = None
    """None: those of the sandbox. In a session, memory, processes and disk are those of its first cell."""
    program: str | None = None
    """What `source` tests: it runs in a process of its own, and the test finds the names that it defines. Only plain
    values go from one to the other, so that the program has no say in what the test comes to."""


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """One SQL statement to run, which can only read."""

    query: str
    max_rows: int = 100
    max_bytes: int = 100_000
    """Of all values together; rows beyond it are left out."""
    limits: SandboxLimits | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a call used."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of all its processes that were waited for; 0 for a cell of a session and at level `remote`."""
    peak_memory_bytes: int = 0
    """Largest resident size, the interpreter included; 0 where cpu_s is."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of a call."""

    outcome: Outcome
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    """`repr` of the last expression of the code; None where there is none."""
    error: str | None = None
    """What went wrong, tracebacks cut to the code's own lines; None when `outcome` is OK."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What `fetch` named and was there."""
    images: tuple[bytes, ...] = ()
    """Figures of matplotlib that were open at the end, as PNG."""
    table: Table | None = None
    """The result of a SQL statement."""
    usage: Usage = Usage()
    level: Level | None = None
    """How the call was contained; None when it never began."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a query."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    """JSON values; bytes are shown by their number."""
    truncated: bool
    """Whether there were more rows than were asked for."""
