"""Faults that happen to a run's process after its first step."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_HELD_S = 3.0
"""Time for which a fault holds that passes."""
_FULL = 1 << 16
"""Bytes that a file may have where the disk is full."""
_JUMP_S = 3600.0
_CLOCK = """
import os, time
now, now_ns, jumped = time.time, time.time_ns, os.path.join(os.path.dirname(__file__), "jumped")
time.time = lambda: now() + (SECONDS if os.path.exists(jumped) else 0.0)
time.time_ns = lambda: now_ns() + (int(SECONDS * 1e9) if os.path.exists(jumped) else 0)
"""
"""A `sitecustomize.py` by which the clock jumps when a file is there."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    name: str
    what: str
    strike: Callable[[int, Path], None]
    """Does it to the process of an id, whose runs are in a folder."""
    overrides: tuple[str, ...] = ()
    """Of the spec, where the fault is one of its tools: its numbers are its own then."""
    prepare: Callable[[Path], Mapping[str, str]] = lambda folder: {}
    """Variables that the process begins with; takes a folder that holds the runs, and may hold more."""


def _do_nothing(pid: int, runs: Path) -> None:
    """The fault is in the spec."""


def _send(number: signal.Signals) -> Callable[[int, Path], None]:
    return lambda pid, runs: os.kill(pid, number)


def _pause(pid: int, runs: Path) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(_HELD_S)
    os.kill(pid, signal.SIGCONT)


def _fill_disk(pid: int, runs: Path) -> None:
    """No file may have more than a little, as on a disk without room."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (_FULL, _FULL))


def _lock_database(pid: int, runs: Path) -> None:
    with closing(sqlite3.connect(runs / "rlf.db", timeout=60, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        time.sleep(_HELD_S)
        database.execute("ROLLBACK")


def _kill_children(pid: int, runs: Path) -> None:
    """Ends the workers that the run has started, where it has some."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            os.kill(int(child), signal.SIGKILL)


def _take_files(pid: int, runs: Path) -> None:
    """The process may open no more files than it has open."""
    held = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (held, held))


def _prepare_clock(folder: Path) -> Mapping[str, str]:
    place = folder / "clock"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_CLOCK.replace("SECONDS", repr(_JUMP_S)), encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))}


def _move_clock(pid: int, runs: Path) -> None:
    (runs.parent / "clock" / "jumped").touch()
    time.sleep(_HELD_S)
    (runs.parent / "clock" / "jumped").unlink()


FAULTS: tuple[Fault, ...] = (
    Fault("kill", "the process is killed (SIGKILL)", _send(signal.SIGKILL)),
    Fault("stop", "it is asked to end (SIGTERM)", _send(signal.SIGTERM)),
    Fault("interrupt", "Ctrl-C (SIGINT)", _send(signal.SIGINT)),
    Fault("hang-up", "its terminal is closed (SIGHUP)", _send(signal.SIGHUP)),
    Fault("pause", f"it stands still for {_HELD_S:g} s (SIGSTOP)", _pause),
    Fault("disk", "the disk is full", _fill_disk),
    Fault("lock", f"another program locks the database for {_HELD_S:g} s", _lock_database),
    Fault("workers", "its worker processes are killed", _kill_children),
    Fault("clock", f"the clock jumps an hour ahead, and {_HELD_S:g} s later back", _move_clock, prepare=_prepare_clock),
    Fault("descriptors", "it may open no further file", _take_files),
    Fault("tool errors", "three of ten calls of a tool fail", _do_nothing, ("rollout.faults={errors: 0.3}",)),
    Fault("tool time-outs", "three of ten calls of a tool time out", _do_nothing, ("rollout.faults={timeouts: 0.3}",)),
    Fault("cut results", "half of the results are cut", _do_nothing, ("rollout.faults={truncated: 0.5}",)),
)
