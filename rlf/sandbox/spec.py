"""The keys of a sandbox in the YAML, and how strongly calls are contained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from rlf.core.addresses import WebAddress
from rlf.core.kinds import StrictModel, wrong_value


class Level(StrEnum):
    """How a call is contained, strongest first."""

    NAMESPACES = "namespaces"
    """A warm fork server inside bubblewrap; each call has user, pid, mount and IPC namespaces of its own, a file system
    in memory, limits and a seccomp filter."""
    LANDLOCK = "landlock"
    """A fork server on the host; each call is one process, held to its folder by Landlock, limits and a
    seccomp filter."""
    PROCESS = "process"
    """A fork server on the host with limits alone: reads what you read, writes what you write."""
    REMOTE = "remote"
    """An HTTP sandbox elsewhere that speaks SandboxFusion's protocol."""

    @property
    def contains_hostile_code(self) -> bool:
        """Whether code that means harm is held."""
        return self is not Level.PROCESS


class LevelChoice(StrEnum):
    """The level that a spec asks for."""

    AUTO = "auto"
    """The strongest that the machine offers; `process` only with `allow_unsafe: true`."""
    NAMESPACES = "namespaces"
    """Namespaces or nothing."""
    LANDLOCK = "landlock"
    """Landlock or nothing."""
    PROCESS = "process"
    """Limits alone; needs `allow_unsafe: true`."""
    REMOTE = "remote"
    """The HTTP sandbox at `url`."""


@dataclass(frozen=True, slots=True)
class LevelReport:
    """Whether a machine offers a level."""

    level: Level
    available: bool
    why: str
    """What was found; where it is not available, the reason."""
    fix: str = ""
    """What to do to get it; empty when nothing is to be done or nothing can be."""


class SandboxLimits(StrictModel):
    """Limits of one call. Calls cannot change them."""

    wall_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Time from start to result; the call is killed at it."""
    cpu_s: int = Field(default=10, ge=1)
    """Processor time of each process of a call. Cells of a session are bounded by `wall_s` alone."""
    memory_mb: int = Field(default=512, ge=16)
    """Memory of a call beside the interpreter and the packages imported before it, in MiB."""
    processes: int = Field(default=32, ge=1)
    """Processes and threads of a call at once, the first included; at level `landlock` there is no second process."""
    disk_mb: int = Field(default=64, ge=1)
    """Files of a call, in MiB."""
    output_bytes: int = Field(default=64_000, ge=1_000)
    """What is kept of stdout and stderr together; a call that writes 16 times as much is killed."""


class SandboxSpec(StrictModel):
    """How calls are contained."""

    level: LevelChoice = LevelChoice.AUTO
    """How calls are contained."""
    url: WebAddress | None = None
    """Address of the HTTP sandbox, for level `remote` alone: `/run_code` is added."""
    allow_unsafe: bool = False
    """Whether code may run at level `process`, which does not hold code that means harm."""
    packages: tuple[str, ...] = ()
    """Installed distributions that code may import beside the standard library, e.g. `numpy`; what they require comes
    with them. They are imported once, before the first call."""
    limits: SandboxLimits = SandboxLimits()
    """What one call may use of the machine."""
    max_sessions: int = Field(default=128, ge=1)
    """Sessions at once; beyond it the one that was idle longest is ended."""

    @model_validator(mode="after")
    def _url_goes_with_remote(self) -> Self:
        if (self.level is LevelChoice.REMOTE) != (self.url is not None):
            raise wrong_value("`url` and `level: remote` go together; write both or neither")
        return self

    @model_validator(mode="after")
    def _process_is_asked_for_by_name(self) -> Self:
        if self.level is LevelChoice.PROCESS and not self.allow_unsafe:
            raise wrong_value(
                "level `process` cannot contain hostile code; write `allow_unsafe: true` to run it all the same"
            )
        return self


# Calls of a sandbox and their results.


class SandboxOutcome(StrEnum):
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
class ResourceUsage:
    """Resources that a call used."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of all its processes that were waited for; 0 for a cell of a session and at level `remote`."""
    peak_memory_bytes: int = 0
    """Largest resident size, the interpreter included; 0 where cpu_s is."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of a call."""

    outcome: SandboxOutcome
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
    table: QueryRows | None = None
    """The result of a SQL statement."""
    usage: ResourceUsage = ResourceUsage()
    level: Level | None = None
    """How the call was contained; None when it never began."""


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Rows of a query."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    """JSON values; bytes are shown by their number."""
    truncated: bool
    """Whether there were more rows than were asked for."""
