"""Which process runs a run, as far as its pid can say.

A pid alone is reused; with the process's start time and the machine's boot it names one process for good. It means
something only in its own pid namespace: elsewhere the lease decides (`rlf.lineage.lease`).
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one boot of one machine."""

    pid: int
    node: str
    """Network name of the machine or container."""
    boot: str
    """Boot id and pid namespace: pids mean the same thing only where this is equal. Empty without /proc."""
    pid_ticks: int
    """Start time in clock ticks since boot; 0 where unknown."""

    @property
    def kernel(self) -> str:
        """Names one boot of one machine, whatever its containers are called."""
        return self.boot.partition(" ")[0] or self.node


def current_process() -> Process:
    """This process."""
    return process_of(os.getpid())


def process_of(pid: int) -> Process:
    """A process of this machine that was just started."""
    return Process(pid, platform.node(), _read_boot_id(), _start_ticks(pid) or 0)


def is_visible(process: Process) -> bool:
    """Whether a pid means the same thing here as where the process ran, so that `is_gone` can answer."""
    return process.boot == _read_boot_id() and (bool(process.boot) or process.node == platform.node())


def is_gone(process: Process) -> bool:
    """Whether a visible process no longer runs."""
    if not process.boot:
        return not _is_answering(process.pid)
    return _start_ticks(process.pid) != process.pid_ticks


def _read_boot_id() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None when the process is gone or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _is_answering(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
