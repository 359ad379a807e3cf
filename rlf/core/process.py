"""This process: what the machine offers it, what it logs, and which signals end it."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import resource
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from rlf.core.errors import RlfError


def usable_cores() -> int:
    """Cores that this process may run on, which on Linux can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_memory_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cache_folder() -> Path:
    """Folder of rlf's caches for this user. Raises OSError for a user without a home, as in some containers."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlf"
    except RuntimeError as error:
        raise OSError(str(error)) from error


class _MemoryLimit:
    """Refuses, before they load, libraries for which a limit of this process's address space is too small.

    With too little numpy's OpenBLAS asks for memory without end, in code that no signal interrupts.
    """

    LEAST_BYTES = 2 << 30

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes

    def find_spec(self, name: str, *_: object) -> None:
        """Finds no module. Raises RlfError for one that would not load."""
        if name in ("numpy", "torch"):
            words = f"the limit of memory addresses (`ulimit -v`) is {self._limit_bytes / 1e9:.1f} GB"
            raise RlfError(f"{words}; a model needs {self.LEAST_BYTES / 1e9:.1f} GB. Raise it: `ulimit -v unlimited`.")


def heed_memory_limit() -> None:
    """Has a limit of address space that holds no model end a command in words when it loads one."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit_bytes < _MemoryLimit.LEAST_BYTES:
        sys.meta_path.insert(0, _MemoryLimit(limit_bytes))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits while another process holds the same lock, such as one that makes the same environment."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# What a command prints goes through descriptors of its own: a tool or reward in this process that closes descriptor 1
# or `sys.stdout` ends neither the command nor has its lines written into the file that gets this number next.


class RefusedOutput(OSError):
    """What is printed cannot be written where it goes, such as a full disk."""


class _Kept(io.TextIOWrapper):
    """A stream that stays open until the process ends. What stderr does not take is dropped."""

    def write(self, text: str) -> int:
        """Writes a text. Raises RefusedOutput, or BrokenPipeError where nobody reads it."""
        if text != "":  # as libraries write to see what a stream is, and ask no more
            with self._refusing():
                super().write(text)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered. Raises as `write` does."""
        with self._refusing():
            super().flush()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            if self is not sys.stderr:
                raise RefusedOutput(error.errno, f"the output cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Writes what is buffered."""
        if not self.closed:
            self.flush()


def keep_streams() -> None:
    """Moves `sys.stdout` and `sys.stderr` to descriptors that nothing else knows; opens those that were closed.

    What is typed or piped in may hold bytes of any encoding: those that are not valid become U+FFFD.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    for number in range(3):  # in order: what is opened takes the least number that is free
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", errors="replace", closefd=False))  # noqa: SIM115
        elif type(stream) is io.TextIOWrapper and stream.fileno() == number:
            stream.flush()
            is_lined = stream.line_buffering or stream.write_through
            raw = open(os.dup(number), "wb", 0 if stream.write_through else -1)  # noqa: SIM115, PTH123
            kept = _Kept(raw, stream.encoding, "replace", line_buffering=is_lined, write_through=stream.write_through)
            setattr(sys, name, kept)


# Logging set-up: everything goes to stderr, results alone to stdout.


def configure(verbosity: int = 0) -> None:
    """Sends rlf's log to stderr: warnings, with 1 information, with 2 debugging."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("rlf")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


# Signals that end a command as Ctrl-C does, and which of them came.

_SIGNALS = ("SIGTERM", "SIGHUP")
_WORDS = {
    "SIGTERM": "stopped by SIGTERM (`kill`, a scheduler, or the system's shutdown)",
    "SIGHUP": "stopped by SIGHUP (its terminal closed)",
}
_received: list[str] = []


def heed_signals() -> None:
    """Lets SIGTERM and SIGHUP end the program as Ctrl-C does; one that is ignored, as under `nohup`, stays so."""
    for name in _SIGNALS:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise_interrupt)


@contextmanager
def heeded() -> Iterator[None]:
    """Heeds the signals within a block, as a command does. A program's own handlers stay; all come back after it."""
    if threading.current_thread() is not threading.main_thread():  # Python takes signals there alone
        yield
        return
    _received.clear()
    numbers = [getattr(signal, name) for name in _SIGNALS]
    kept = {number: signal.getsignal(number) for number in numbers}
    unset = [number for number in numbers if kept[number] is signal.SIG_DFL]
    for number in unset:
        signal.signal(number, _raise_interrupt)
    try:
        yield
    finally:
        for number in unset:
            signal.signal(number, kept[number])


def reason() -> str:
    """Why a KeyboardInterrupt came."""
    return _WORDS[_received[-1]] if _received else "stopped by Ctrl-C"


def _raise_interrupt(number: int, _frame: object) -> None:
    """Ends as Ctrl-C does, also where a shell has it ignored for a background job."""
    _received.append(signal.Signals(number).name)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


# Folders beside Python's own path in which the modules of callables are looked for.

_FOLDERS: list[str] = []
OWN = str(Path(__file__).parents[1]) + os.sep
"""The folder of rlf's own code."""


def import_from(folder: Path) -> None:
    """Has callables found in a folder too, as `python -m` would there. No import of rlf's own looks into it before the
    first callable is loaded: a folder that only lies in the way must not replace a library."""
    if str(folder) not in _FOLDERS:
        _FOLDERS.append(str(folder))


def search_folders() -> list[str]:
    """Where modules of callables are looked for, in order."""
    return list(dict.fromkeys([*_FOLDERS, *sys.path]))


def extend_path() -> None:
    """Has every import look into the folders first."""
    sys.path[:0] = [folder for folder in _FOLDERS if folder not in sys.path]


@cache
def library_folders() -> tuple[str, ...]:
    """Where Python's own library and installed packages lie."""
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def show_place(place: str) -> str:
    """A file or module as messages name it."""
    return os.path.relpath(place) if Path(place).is_relative_to(Path.cwd()) else place
