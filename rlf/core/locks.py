"""Locked files: the kernel releases a lock when its process dies, whatever kills it, so that a lock says who lives."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

_ATTEMPTS, _PAUSE_S = 25, 0.02
"""A process that looks whether a lock is held holds it itself for a moment."""


def lock_file(path: Path, *, takes_over: bool = False) -> int | None:
    """The descriptor that holds a file's lock; None where the file system has no locks or cannot be written."""
    for _ in range(_ATTEMPTS):
        try:
            path.parent.mkdir(exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # another process has just removed the empty folder
            continue
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            if takes_over:
                path.unlink(missing_ok=True)
            else:
                time.sleep(_PAUSE_S)
            continue
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            return None
        if is_at(file, path):
            return file
        os.close(file)
    raise BlockingIOError(f"{path}: another process holds the lock")


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one that its name leads to."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def take_shared(path: Path) -> int | None:
    """The descriptor of a file that no process has locked; None where there is none, or that cannot be known from here.

    While it is open no process gets the lock.

    Raises:
        BlockingIOError: a process holds the lock.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return file


def is_held(path: Path) -> bool | None:
    """Whether a process holds a file's lock; None where that cannot be known from here."""
    try:
        file = take_shared(path)
    except BlockingIOError:
        return True
    if file is None:
        return None
    os.close(file)
    return False


def remove_lock(path: Path) -> None:
    """Deletes a lock file, and its folder with the last one."""
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()
