"""Faults that happen to a run's process, most of them once its first checkpoint is there."""

from __future__ import annotations

import os
import re
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from rlf.processes.supervise import descendants

_HELD_S = 3.0
"""Time for which a fault holds that passes."""
_FULL = 1 << 16
"""Bytes that a file may have where the disk is full."""
SHIM = "shim"
"""The folder beside the runs whose `sitecustomize.py` the process of a run loads."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """One fault."""

    name: str
    what: str
    strike: Callable[[int, Path], None]
    """Does it to the process of an id, whose runs are in a folder."""
    overrides: tuple[str, ...] = ()
    """Of the spec, where the fault is one of its tools."""
    marks: bool = False
    """Whether it leaves a mark each time that it strikes: without one it was not tried."""
    words: str = ""
    """A pattern of what a run says that meets it: one that comes to its end without these words was not tried."""
    end: Callable[[Path], None] | None = None
    """Ends what it did to the folder of the runs, once the process is over."""
    waits: bool = False
    """Whether it strikes in the middle of a step's rollouts, so that turns are cut off; else as soon as it can."""
    early: bool = False
    """Whether it strikes before the first checkpoint, when the run has nothing to resume from."""

    @property
    def changes_numbers(self) -> bool:
        """Whether tools or servers answer otherwise, so that a run under it has numbers of its own."""
        return bool(self.overrides) or self.name.startswith("service ")

    def is_met(self, code: int | None, heard: str, *, has_mark: bool) -> bool:
        """Whether it struck, by what a run left that it was done to: its exit code, its words and a mark."""
        if self.marks:
            return has_mark
        return code != 0 or re.search(self.words, heard) is not None


def _do_nothing(pid: int, runs: Path) -> None:
    """The fault is in the spec."""


def _send(number: signal.Signals) -> Callable[[int, Path], None]:
    return lambda pid, runs: os.kill(pid, number)


def _pause(pid: int, runs: Path) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(_HELD_S)
    os.kill(pid, signal.SIGCONT)


def _fill_disk(pid: int, runs: Path) -> None:
    """No file may have more than a little, as on a disk without room. The limit would kill what is not Python."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (_FULL, _FULL))
    for child in descendants(pid):
        with suppress(OSError):  # over
            ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{child}/status").read_text())
            if ignored is not None and int(ignored[1], 16) >> (signal.SIGXFSZ - 1) & 1:
                resource.prlimit(child, resource.RLIMIT_FSIZE, (_FULL, _FULL))


def _lock_database(pid: int, runs: Path) -> None:
    with closing(sqlite3.connect(runs / "rlf.db", timeout=60, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        time.sleep(_HELD_S)
        database.execute("ROLLBACK")


def _refuse_rows(pid: int, runs: Path) -> None:
    """The database takes no more trajectories, while files are written as before."""
    with closing(sqlite3.connect(runs / "rlf.db", timeout=60, isolation_level=None)) as database:
        body = "BEGIN SELECT RAISE(ABORT, 'the disk fails (by rlf chaos)'); END"
        database.execute(f"CREATE TRIGGER rlf_chaos BEFORE INSERT ON trajectories {body}")


def _take_rows(runs: Path) -> None:
    with closing(sqlite3.connect(runs / "rlf.db", timeout=60, isolation_level=None)) as database:
        database.execute("DROP TRIGGER IF EXISTS rlf_chaos")


def _kill_children(pid: int, runs: Path) -> None:
    """Ends the workers that the run has started. Raises ProcessLookupError where it has none."""
    children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    if not any(children):
        raise ProcessLookupError("it had started none")
    for child in chain(*children):
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


def _take_files(pid: int, runs: Path) -> None:
    """The process that trains may open no file: the lowest number that is free is the first that it may not have."""
    worker = _largest(pid)
    held = {int(entry.name) for entry in Path(f"/proc/{worker}/fd").iterdir()}
    least = next(number for number in count() if number not in held)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (least, least))


def _take_memory(pid: int, runs: Path) -> None:
    """The process that trains may take no more memory than it has; given none at all, Python's threads hang."""
    worker = _largest(pid)
    most = int(Path(f"/proc/{worker}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(worker, resource.RLIMIT_AS, (most, most))


def _largest(pid: int) -> int:
    """The process of a run that has the most memory of its own: where it trains, which may be one that it started."""

    def measure(process: int) -> int:
        with suppress(OSError):  # over
            resident, shared = map(int, Path(f"/proc/{process}/statm").read_text().split()[1:3])
            return resident - shared
        return 0

    return max([pid, *descendants(pid)], key=measure)


def prepare_fault(folder: Path) -> Mapping[str, str]:
    """Variables by which a process meets the faults that its own Python has to make; takes the folder of the runs."""
    place = folder / SHIM
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_bytes(Path(__file__).with_name("shim.py").read_bytes())
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))}


def end_marks(folder: Path) -> bool:
    """Ends the faults of `prepare_fault`. Returns whether one struck."""
    marks = {mark.name for mark in (folder / SHIM).iterdir() if mark.is_file() and not mark.suffix}
    for name in marks:
        (folder / SHIM / name).unlink()
    return "struck" in marks


def _meet(name: str, held_s: float = 0.0) -> Callable[[int, Path], None]:
    """Lets a fault hold for some time, or until the run is over."""

    def strike(pid: int, runs: Path) -> None:
        place = runs.parent / SHIM / name
        place.touch()
        if held_s:
            time.sleep(held_s)
            place.unlink()

    return strike


FAULTS: tuple[Hazard, ...] = (
    Hazard("kill", "the process is killed (SIGKILL)", _send(signal.SIGKILL), waits=True),
    Hazard("early kill", "it is killed before its first checkpoint", _send(signal.SIGKILL), early=True),
    Hazard("stop", "it is asked to end (SIGTERM)", _send(signal.SIGTERM), waits=True),
    Hazard("interrupt", "Ctrl-C (SIGINT)", _send(signal.SIGINT), waits=True),
    Hazard("hang-up", "its terminal is closed (SIGHUP)", _send(signal.SIGHUP), waits=True),
    Hazard("pause", f"it stands still for {_HELD_S:g} s (SIGSTOP)", _pause),
    Hazard("disk", "the disk is full", _fill_disk),
    Hazard("lock", f"another program locks the database for {_HELD_S:g} s", _lock_database),
    Hazard("database", "the database refuses rows, and nothing else fails", _refuse_rows, end=_take_rows),
    Hazard("workers", "its worker processes are killed", _kill_children),
    Hazard("clock", f"the clock jumps an hour ahead, and {_HELD_S:g} s later back", _meet("clock", _HELD_S)),
    Hazard("slow disk", "what waits for the disk waits a second longer", _meet("slow disk"), marks=True),
    Hazard("disk errors", "the disk fails (EIO) where it is waited for", _meet("disk errors"), marks=True),
    Hazard("memory", "it may take no more memory", _take_memory, words="MemoryError|allocate memory|bad_alloc"),
    Hazard("descriptors", "it may open no further file", _take_files, words="Too many open files"),
    *(
        Hazard(f"service {name}", f"one in three requests to servers {what}", _meet(f"service {name}"), marks=True)
        for name, what in (
            ("errors", "is refused"),
            ("drops", "is cut off by the server"),
            ("hangs", "is never answered"),
            ("garbage", "gets bytes that mean nothing"),
        )
    ),
    Hazard("tool errors", "three of ten calls of a tool fail", _do_nothing, ("rollout.faults={errors: 0.3}",)),
    Hazard("tool time-outs", "three of ten calls of a tool time out", _do_nothing, ("rollout.faults={timeouts: 0.3}",)),
    Hazard("cut results", "half of the results are cut", _do_nothing, ("rollout.faults={truncated: 0.5}",)),
)
