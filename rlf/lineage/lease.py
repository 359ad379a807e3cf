"""Who may write a run: one process at a time, by a lease.

A lease is an owner id in the run's row and, beside an SQLite lineage, a locked file. The kernel releases the lock when
the process dies, whatever host name or pid namespace it has, and keeps it while the process is paused: on one kernel
the lock decides. For other machines and database servers the owner's heartbeat decides: after `LEASE_S` without one
the run has no owner. Every write checks the owner in its own transaction, so that two processes never both write.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from rlf.core import RunError
from rlf.core.files import is_at, is_held, is_run_id, lock_file, remove_lock
from rlf.lineage import tables
from rlf.lineage.process import Process, current_process, is_gone, is_visible
from rlf.lineage.records import HIDDEN
from rlf.types import RunStatus

BEAT_S = 15.0
"""Time between two heartbeats."""
LEASE_S = 120.0
"""Age of the last heartbeat from which a run counts as left by a process that cannot be seen from here."""
_JUMP_S = 1.0
"""Difference between the wall clock and the monotonic one from which the wall clock was set, or the machine slept."""


class LeaseLost(RunError):
    """Another process owns the run now, or the run is gone from the lineage."""

    def __init__(self, message: str, *, is_taken_over: bool) -> None:
        super().__init__(message)
        self.is_taken_over = is_taken_over


class Lease:
    """The right to write one run. Where its file cannot be locked, the heartbeat alone decides."""

    def __init__(self, run_id: str, folder: Path | None, *, takes_over: bool = False) -> None:
        """Locks the run's file.

        Args:
            folder: of the lock files; None where the lineage has none.
            takes_over: whether a lock that another process holds is put aside.

        Raises:
            BlockingIOError: another process holds the lock.
        """
        self.run_id = run_id
        # Random and not the pid: a resume in the same process, or a pid that is used again, is another owner.
        self.owner = secrets.token_hex(8)
        self.is_over = False
        """Whether the run's end is recorded, so that nobody needs the lock any more."""
        self._path = _lock_path(folder, run_id)
        self._file = None if self._path is None else lock_file(self._path, takes_over=takes_over)
        # Their difference moves only when the wall clock is set or the machine sleeps: Linux's monotonic clock stands
        # still meanwhile.
        self._clocks_s = time.time() - time.monotonic()

    def columns(self) -> dict[str, Any]:
        """The owner in the run's row."""
        process = current_process()
        named = {"pid": process.pid, "node": process.node, "boot": process.boot, "pid_ticks": process.pid_ticks}
        return {**named, "owner": self.owner, "heartbeat": time.time()}

    def check(self, connection: Connection) -> None:
        """Raises LeaseLost where this process may not write the run any more."""
        # On the caller's connection: who takes the run over writes the owner in a transaction of its own, which comes
        # before this one or waits for it. Asked on another connection, the owner could change before the write.
        columns = tables.runs.c
        row = connection.execute(
            select(columns.owner, columns.pid, columns.node).where(columns.id == self.run_id)
        ).one_or_none()
        if row is None:
            text = (
                "it was removed from the lineage while this process ran it. This process ends and records nothing more."
            )
            raise LeaseLost(f"run {self.run_id}: {text}", is_taken_over=False)
        if row.owner != self.owner:
            by = f"process {row.pid} on {row.node}"
            text = f"{by} took it over. This process ends and writes nothing more; follow the run there."
            raise LeaseLost(f"run {self.run_id}: {text}", is_taken_over=True)

    def beat(self, connection: Connection) -> None:
        """Writes a sign of life. Raises LeaseLost where this process may not write the run any more."""
        self.check(connection)
        self.count_jump(connection)
        connection.execute(update(tables.runs).where(tables.runs.c.id == self.run_id).values(heartbeat=time.time()))

    def count_jump(self, connection: Connection) -> None:
        """Records by how much the wall clock was changed, as time that the run did not take; it may be negative."""
        clocks_s = time.time() - time.monotonic()
        jump_s = clocks_s - self._clocks_s
        if abs(jump_s) < _JUMP_S:
            return
        columns = tables.runs.c
        # Only while it runs: a run that is being imported or removed has its idle time from where it ran.
        is_this = (columns.id == self.run_id, columns.status == RunStatus.RUNNING)
        counted = func.coalesce(columns.idle_s, 0.0) + jump_s
        connection.execute(update(tables.runs).where(*is_this).values(idle_s=counted))
        self._clocks_s = clocks_s

    def release(self) -> None:
        """Releases the lock. Its file stays if the end of the run is not recorded, as a sign of that."""
        if self._file is None:
            return
        assert self._path is not None, "a lock without a file"
        # Removed while it is still locked, so that nobody takes the lock of a name that is about to go; and only where
        # the name leads to this file, for who took the run over has made another one there.
        if self.is_over and is_at(self._file, self._path):
            remove_lock(self._path)
        os.close(self._file)
        self._file = None


def has_owner(row: Row[Any], folder: Path | None) -> bool:
    """Whether a process still runs, imports or removes a run.

    Args:
        row: of the table `runs`.
        folder: of the lineage's lock files.
    """
    if row.status not in (RunStatus.RUNNING, *HIDDEN):
        return False
    process = Process(row.pid, row.node, row.boot, row.pid_ticks)
    path = _lock_path(folder, row.id)
    held = None if path is None else is_held(path)
    if held:
        return True
    # A free lock proves nothing of another machine: file systems that two machines share often lock for each alone.
    if held is False and process.kernel == current_process().kernel:
        return False
    if is_visible(process):
        return not is_gone(process)
    return time.time() - _last_sign(row) < LEASE_S


def describe_owner(row: Row[Any]) -> str:
    """The process that runs a run, with the age of its last heartbeat."""
    age_s = time.time() - _last_sign(row)
    age = f"{age_s:.0f} s old" if age_s > -_JUMP_S else f"{-age_s:.0f} s ahead of this machine's clock"
    return f"process {row.pid} on {row.node}, whose last heartbeat is {age}"


def forget_lock(folder: Path | None, run_id: str) -> None:
    """Removes the lock file of a run that is removed."""
    path = _lock_path(folder, run_id)
    if path is not None:
        remove_lock(path)


def _lock_path(folder: Path | None, run_id: str) -> Path | None:
    """The lock file of a run; None without a folder, and for an id of a crafted database that leads out of it."""
    return folder / run_id if folder is not None and is_run_id(run_id) else None


def _last_sign(row: Row[Any]) -> float:
    return float(row.started if row.heartbeat is None else row.heartbeat)
