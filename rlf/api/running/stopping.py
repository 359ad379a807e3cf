"""Stopping a run from outside of its process: as Ctrl-C does, and only the process that the lineage names."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from rlf.core.errors import RlfError
from rlf.lineage.process import is_visible, send_signal
from rlf.lineage.reader import Reader


@dataclass(frozen=True, slots=True)
class Stopped:
    """A run that was asked to stop."""

    run_id: str
    pid: int
    signal: str


def stop_run(reader: Reader, name: str, *, force: bool) -> Stopped:
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
    return Stopped(run_id, process.pid, number.name)
