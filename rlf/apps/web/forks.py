"""The other side of the zygote: a task is given to a new fork, and its answer awaited."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.core.errors import CheckError, Fault, NotFoundError, Place, RlfError, RunError, SpecError
from rlf.processes.child import start_apart

logger = logging.getLogger(__name__)

ASKER: ContextVar[object] = ContextVar("asker", default=None)
"""For whom this context works: `FreshProcesses.end_calls` ends the calls of one who leaves."""
_KINDS = {kind.__name__: kind for kind in (RunError, CheckError, NotFoundError)}
_MAX_BYTES = 1 << 28
_KEEP_S, _MAX_KEPT, _MAX_FILES = 60.0, 128, 5_000
_GRACE_S = 2.0
"""Time for which an answer is awaited after the deadline of the fork itself."""


_State = frozenset[tuple[str, int, int]] | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer, and when and over which files it was given."""

    state: _State
    at_s: float
    answer: Any


class FreshProcesses:
    """Gives tasks to forks that start in a project's folder."""

    def __init__(self, folder: Path, runs_folder: Path) -> None:
        self._folder = folder
        self._runs_folder = runs_folder
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._calls = dict[socket.socket, object]()

    def call(self, task: str, *, deadline_s: int = 30, **arguments: Any) -> Any:
        """The JSON of what a task of `rlf.apps.web.tasks` returns.

        Raises:
            RlfError: what the task raised, or it took too long.
        """
        asked = {"task": task, "arguments": arguments, "folder": str(self._folder), "deadline_s": deadline_s}
        with self._connect() as connection, self._counted(connection):
            connection.settimeout(deadline_s + _GRACE_S + _START_S)
            connection.sendall(json.dumps(asked).encode())
            connection.shutdown(socket.SHUT_WR)
            try:
                with connection.makefile("rb") as file:
                    answer = file.read(_MAX_BYTES)
            except OSError:  # it takes too long, or the process is gone
                answer = b""
        if not answer:
            raise RunError(f"{task}: no answer within {deadline_s} s, or its process ended; the server's log says why.")
        try:
            read = json.loads(answer)
        except ValueError as fault:  # code of the project's wrote between, or without end
            words = "its process sent something else than an answer: does code of the project write to a socket?"
            raise RunError(f"{task}: {words}") from fault
        return _read(read)

    def read(self, task: str, *, deadline_s: int = 30, **arguments: Any) -> Any:
        """As `call`, for a task that changes nothing: its result is cached until a file of the project changes.

        What lies outside of the project may change without a sign: no answer is kept for longer than a minute.
        """
        key, state = json.dumps([task, arguments], sort_keys=True), self._look()
        kept = self._find_kept(key, state)
        if kept is not None:
            return kept.answer
        answer = self.call(task, deadline_s=deadline_s, **arguments)
        with self._lock:
            while len(self._kept) >= _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = _Kept(state, time.monotonic(), answer)
        return answer

    def is_kept(self, task: str, **arguments: Any) -> bool:
        """Whether `read` answers at once."""
        return self._find_kept(json.dumps([task, arguments], sort_keys=True), self._look()) is not None

    def _find_kept(self, key: str, state: _State) -> _Kept | None:
        kept = self._kept.get(key)
        fits = kept is not None and kept.state == state and state is not None
        return kept if kept is not None and fits and time.monotonic() - kept.at_s < _KEEP_S else None

    def _look(self) -> _State:
        """The files of the project by name, time and size; None where they are too many to look at."""
        found, folders = set[tuple[str, int, int]](), [self._folder]
        while folders and len(found) < _MAX_FILES:
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if not entry.name.startswith((".", "__pycache__")) and Path(entry.path) != self._runs_folder:
                            folders.append(Path(entry.path))
                        continue
                    with suppress(OSError):
                        about = entry.stat()
                        found.add((entry.path, about.st_mtime_ns, about.st_size))
        return frozenset(found) if len(found) < _MAX_FILES else None

    def end_calls(self, asker: object = None) -> None:
        """Lets calls return at once, with an error, and ends their forks: those of an asker, or all."""
        for connection, whose in tuple(self._calls.items()):
            if asker is None or whose is asker:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _counted(self, connection: socket.socket) -> Iterator[None]:
        self._calls[connection] = ASKER.get()
        try:
            yield
        finally:
            del self._calls[connection]

    def close(self) -> None:
        """Ends the zygote, and with it the forks that still work."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._zygote is not None:
                self._zygote.wait()
            self._control = self._zygote = None

    def _connect(self) -> socket.socket:
        """A socket to a new fork."""
        with self._lock:
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self._started(), [b"\0"], [theirs.fileno()])
            return ours

    def _started(self) -> socket.socket:
        if self._zygote is not None and self._control is not None and self._zygote.poll() is None:
            return self._control
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "rlf.apps.web.zygote", str(theirs.fileno())]
            threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            self._zygote = start_apart(command, env=os.environ | threads, pass_fds=[theirs.fileno()])
        self._control = ours
        return ours


_START_S = 30.0
"""Time in which the zygote has started, on a loaded machine."""


def _read(answer: dict[str, Any]) -> Any:
    """The result of a task; raises what it raised."""
    if "data" in answer:
        return answer["data"]
    if answer["kind"] == "SpecError":
        raise SpecError(Fault(Place(**fault["place"]), fault["path"], fault["message"]) for fault in answer["faults"])
    if "trace" in answer:
        logger.error("a task failed: %s", answer["trace"])
        raise RunError(answer["error"])
    raise _KINDS.get(answer["kind"], RlfError)(answer["error"])
