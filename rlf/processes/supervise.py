"""Runs one command and sees to it that nothing of it is left: `python supervise.py COMMAND ...`.

Ray starts daemons, actors start tools, tools start processes of their own, in sessions of their own. The supervisor is
the one that orphans fall to (Linux's child subreaper), so that all of them stay its descendants. When the command
ends, when the supervisor is asked to end, or when whoever started it dies, it ends every one of them.

Uses the standard library alone, so that it is up before anything heavy and runs under any Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GRACE_S = 5.0
"""Time that processes have to end by themselves after SIGTERM."""
_POLL_S = 0.05


def main(command: list[str]) -> int:
    """Runs the command to its end; its exit code, or 128 + the signal that ended it."""
    for number in _SIGNALS:
        signal.signal(number, _raise_ended)
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _call_prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # whoever started it is gone already
        return 128 + signal.SIGTERM
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=_SIGNALS)
        status = _wait_for(pid)
    except _Ended as ended:
        status = 128 + ended.number
    finally:
        _ignore_signals()
        end_descendants(os.getpid(), GRACE_S)
    return status


class _Ended(BaseException):
    """A signal asks the supervisor to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def _raise_ended(number: int, _frame: FrameType | None) -> None:
    """Called once: a process with many threads reports its death once per thread."""
    _ignore_signals()
    raise _Ended(number)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _wait_for(pid: int) -> int:
    """Waits for one child, and reaps every orphan on the way."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def end_descendants(root: int, grace_s: float) -> None:
    """Asks every descendant of a process to end, then kills what is left, until there is none."""
    asked: set[int] = set()
    deadline = time.monotonic() + grace_s
    while left := descendants(root):
        late = time.monotonic() > deadline
        for pid in left if late else left - asked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        asked |= left
        time.sleep(_POLL_S)
        _reap_children()
    _reap_children()


def descendants(root: int) -> set[int]:
    """Process ids of all living descendants of a process, zombies left out."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(entry.name)] = int(parent)
    found: set[int] = set()
    new = {root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def _reap_children() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _call_prctl(option: int, value: int) -> None:
    """Does nothing on systems other than Linux, where a process group is all there is."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
