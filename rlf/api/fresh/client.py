"""The other side of the zygote: a task is given to a new fork, and its answer awaited."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlf.core.errors import CheckError, Fault, NotFoundError, Place, RlfError, RunError, SpecError

logger = logging.getLogger(__name__)

_KINDS = {kind.__name__: kind for kind in (RunError, CheckError, NotFoundError)}
_GRACE_S = 2.0
"""Time for which an answer is awaited after the deadline of the fork itself."""


class FreshProcesses:
    """Gives tasks to forks that start in a project's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._calls = set[socket.socket]()

    def call(self, task: str, *, deadline_s: int = 30, **arguments: Any) -> Any:
        """The JSON of what a task of `rlf.api.fresh.tasks` returns.

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
                    answer = file.read()
            except OSError:  # it takes too long, or the process is gone
                answer = b""
        if not answer:
            raise RunError(f"{task}: no answer within {deadline_s} s, or its process ended; the server's log says why.")
        return _read(json.loads(answer))

    def end_calls(self) -> None:
        """Lets every call return at once, with an error."""
        for connection in tuple(self._calls):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _counted(self, connection: socket.socket) -> Iterator[None]:
        self._calls.add(connection)
        try:
            yield
        finally:
            self._calls.discard(connection)

    def close(self) -> None:
        """Ends the zygote; forks that still work end at their deadlines."""
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
            command = [sys.executable, "-m", "rlf.api.fresh.zygote", str(theirs.fileno())]
            threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            self._zygote = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=os.environ | threads, stdin=subprocess.DEVNULL, process_group=0
            )  # a group of its own, so that Ctrl-C of the server's terminal is the server's alone
        self._control = ours
        return ours


_START_S = 30.0
"""Time in which the zygote has started, on a loaded machine."""


def _read(answer: dict[str, Any]) -> Any:
    """What a task returned; raises what it raised."""
    if "data" in answer:
        return answer["data"]
    if answer["kind"] == "SpecError":
        raise SpecError(Fault(Place(**fault["place"]), fault["path"], fault["message"]) for fault in answer["faults"])
    if "trace" in answer:
        logger.error("a task failed: %s", answer["trace"])
        raise RunError(answer["error"])
    raise _KINDS.get(answer["kind"], RlfError)(answer["error"])
