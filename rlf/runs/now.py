"""The present work of a run: a file in its folder, which its process writes and other processes read."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rlf.core.clocks import open_stages, open_waits
from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.lineage.process import is_visible, send_signal
from rlf.lineage.reader import Reader

FILE = "now.json"
_EVERY_S = 0.5
_LONG_S = 2.0
"""A wait of which it is reported how long it has lasted."""


@dataclass(frozen=True, slots=True)
class Doing:
    """A current stage of a run's work."""

    what: str
    """E.g. `train 3`: the trajectories of a step or evaluation; `update 3`, `checkpoint 3`."""
    num_done: int
    num_planned: int
    """0 where nothing is counted."""
    since: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class PendingCalls:
    """Pending calls of one tool, or pending requests to one model."""

    what: str
    """E.g. `tool search`."""
    number: int
    since: float
    """Unix time at which the longest of them began."""


@dataclass(frozen=True, slots=True)
class Now:
    """The present work of a run."""

    stages: tuple[Doing, ...]
    waits: tuple[PendingCalls, ...]

    def words(self, at: float) -> str:
        """The same as a sentence. Args: at: Unix time of the reader."""
        doing = [
            f"{one.what}: {one.num_done} of {one.num_planned}" if one.num_planned else one.what for one in self.stages
        ]
        waits = [
            f"{one.what} ({one.number}{f', for {at - one.since:.0f} s' if at - one.since >= _LONG_S else ''})"
            for one in self.waits
        ]
        waiting = f"waits for {', '.join(waits)}" if waits else ""
        return " · ".join(filter(None, [*doing, waiting]))


def look_now() -> Now:
    """The present work of this process."""
    waits = defaultdict[str, list[float]](list)
    for since, what in open_waits():
        waits[what.partition(" (")[0]].append(since)
    return Now(
        tuple(Doing(one.what, one.num_done, one.num_planned, one.since) for one in open_stages()),
        tuple(PendingCalls(what, len(times), min(times)) for what, times in sorted(waits.items())),
    )


def now_words(runs_folder: Path, run_id: str) -> str:
    """The present work of a run as a sentence; empty if it does not report any."""
    now = read_now(runs_folder, run_id)
    return "" if now is None else now.words(time.time())


def read_now(runs_folder: Path, run_id: str) -> Now | None:
    """The present work of a run; None if it does not report any."""
    try:
        found = json.loads((run_folder(runs_folder, run_id) / FILE).read_text(encoding="utf-8"))
        return Now(tuple(Doing(**one) for one in found["stages"]), tuple(PendingCalls(**one) for one in found["waits"]))
    except (RlfError, OSError, ValueError, KeyError, TypeError):  # not there, or another rlf's
        return None


class NowWriter:
    """Writes what this process does while the block runs, on a thread of its own, and removes the file at the end."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_until_ended, name="now", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _write_until_ended(self) -> None:
        written, draft = None, self._file.with_suffix(".draft")
        while not self._ended.wait(_EVERY_S):
            now = look_now()
            if now == written:
                continue
            with suppress(OSError):  # a full disk ends runs elsewhere
                self._file.parent.mkdir(parents=True, exist_ok=True)
                draft.write_text(json.dumps(asdict(now)), encoding="utf-8")
                draft.replace(self._file)
                written = now


# Stopping a run from outside of its process: as Ctrl-C does, and only the process that the lineage names.


@dataclass(frozen=True, slots=True)
class RunStop:
    """A run that was asked to stop."""

    run_id: str
    pid: int
    signal: str


def stop_run(reader: Reader, name: str, *, force: bool) -> RunStop:
    """Asks a run's process to stop after what it is doing, or at once.

    Args:
        force: sends SIGTERM in place of SIGINT, for a process that does not stop.

    Raises:
        RlfError: nothing runs it, or its process is of another machine or container.
    """
    run_id = reader.get_run(name).record.id
    process = reader.owner(run_id)
    if process is None:
        raise RlfError(f"run {run_id}: no process runs it. `rlf resume {run_id}` continues it.")
    if not is_visible(process):
        raise RlfError(f"run {run_id}: runs as process {process.pid} on {process.node}. Stop it there.")
    number = signal.SIGTERM if force else signal.SIGINT
    if not send_signal(process, number):
        raise RlfError(f"run {run_id}: its process {process.pid} has just ended.")
    return RunStop(run_id, process.pid, number.name)
