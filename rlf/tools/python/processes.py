"""Python functions in processes of their own, which are killed when a call is given up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from rlf.core import RlfError
from rlf.core.forking import LENGTH
from rlf.core.redact import Redactor
from rlf.tools.failure import ToolFailure
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.python.process_state import Leftover
from rlf.types import Image, Outcome, ToolOutput

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 64_000_000
"""Longest reply that is read; with a longer one the worker is killed."""
_START_S = 60.0
_END_S = 2.0
_MAX_LINE_BYTES = 1 << 20
_KEPT = {"threads": "they cannot be stopped and may run during later calls"}
"""Leftovers that a process may keep and still serve."""
_RETIRED = "it cannot be restored, so each such process ends after its call"


class ProcessRuntime(ToolRuntime):
    """Calls a function in worker processes, one call at a time each. Workers are made when needed and kept."""

    isolation = "process"
    ends_when_cancelled = True

    def __init__(self, callable_name: str) -> None:
        self._callable = callable_name
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._reported: set[str] = set()
        """What calls leave in their process, by name: each is reported once."""

    async def open(self) -> None:
        """Starts a first worker. Raises RlfError when it cannot import the function."""
        try:
            self._idle.append(await self._start_worker())
        except BaseException:
            await self.close()
            raise

    async def make_ready(self, trajectory_id: str) -> None:
        """Has a worker for the call that follows before anything else is awaited: its start is not the call's time."""
        while self._idle and self._idle[-1].is_gone:
            self._end_worker(self._idle.pop())
        if self._idle:
            return
        try:
            self._idle.append(await self._start_worker())
        except (RlfError, OSError, ToolFailure) as fault:
            raise ToolFailure(Outcome.INFRA, f"the process of the tool cannot be started again: {fault}") from fault

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call; cancelling it kills its worker."""
        worker = self._idle.pop()
        try:
            reply = await worker.ask(dict(arguments))
        except BaseException:
            self._end_worker(worker)
            raise
        self._keep_worker(worker, [Leftover(*item) for item in reply["leftovers"]])
        return _read_output(reply)

    async def close(self) -> None:
        """Kills every worker; none is left when this returns."""
        for worker in self._all:
            worker.kill()
        await asyncio.gather(*(worker.ended() for worker in self._all))
        self._all.clear()

    def _keep_worker(self, worker: _Worker, leftovers: Sequence[Leftover]) -> None:
        """Has the worker serve again, unless a call changed something of its process that cannot be put back."""
        for leftover in leftovers:
            if leftover.name not in self._reported:
                self._reported.add(leftover.name)
                how = "restored after each call" if leftover.is_reset else _KEPT.get(leftover.name, _RETIRED)
                logger.warning("%s changes %s of its process: %s", self._callable, leftover.name, how)
        if all(leftover.is_reset or leftover.name in _KEPT for leftover in leftovers):
            self._idle.append(worker)
        else:
            self._end_worker(worker)

    async def _start_worker(self) -> _Worker:
        worker = _Worker()
        self._all = {known for known in self._all if not known.is_gone} | {worker}
        try:
            await asyncio.wait_for(worker.start(self._callable), _START_S)
        except TimeoutError as fault:
            self._end_worker(worker)
            raise RlfError(f"{self._callable}: its process did not import it within {_START_S:g} s.") from fault
        except BaseException:
            self._end_worker(worker)
            raise
        return worker

    def _end_worker(self, worker: _Worker) -> None:
        worker.kill()
        logger.debug("worker %d of %s was ended", worker.process.pid, self._callable)


class _Worker:
    """One process and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-u", "-m", "rlf.tools.python.worker", str(theirs.fileno()), str(os.getpid())]
            # Its own session: Ctrl-C is this process's to handle. The tool's code has the keys that it needs.
            self.process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        redact = Redactor(os.environ).text
        self._relay = threading.Thread(target=relay_output, args=(self.process.stdout, redact), daemon=True)
        self._relay.start()

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended and was waited for."""
        return self.process.poll() is not None

    async def start(self, callable_name: str) -> None:
        """Lets the process import the function. Raises RlfError."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        reply = await self.ask({"path": sys.path, "callable": callable_name})
        if "fault" in reply:
            raise RlfError(reply["fault"])

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """One message and its reply. Raises ToolFailure when the process ends instead."""
        try:
            body = json.dumps(message).encode()
            self._writer.write(LENGTH.pack(len(body)) + body)
            await self._writer.drain()
            size = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))[0]
            if size > MAX_REPLY_BYTES:
                raise ToolFailure(Outcome.OUTPUT_REJECTED, f"the tool returned {size} bytes")
            reply: dict[str, Any] = json.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError) as fault:
            raise await self._describe_death() from fault
        return reply

    def kill(self) -> None:
        """Ends the process and whatever it started."""
        self._socket.close() if not hasattr(self, "_writer") else self._writer.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def ended(self) -> int | None:
        """The exit code, waited for; None when it does not come."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = await asyncio.to_thread(self.process.wait, _END_S)
            await asyncio.to_thread(self._relay.join, _END_S)
            return code
        return None

    async def _describe_death(self) -> ToolFailure:
        code = await self.ended()
        how = "no exit code" if code is None else f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return ToolFailure(Outcome.INFRA, f"the process of the tool ended during the call ({how})")


def relay_output(printed: IO[bytes], redact: Callable[[str], str]) -> None:
    """Writes what a worker prints to stderr, line by line and without the secrets of the environment."""
    with printed:
        while line := printed.readline(_MAX_LINE_BYTES):
            with contextlib.suppress(OSError, ValueError):  # stderr may be closed; the worker must not wait for it
                sys.stderr.write(redact(line.decode(errors="replace")))


def _read_output(reply: Mapping[str, Any]) -> ToolOutput:
    outcome = Outcome(reply["outcome"])
    if outcome is not Outcome.OK and "images" not in reply:
        raise ToolFailure(outcome, reply["text"])
    images = tuple(Image(base64.b64decode(data), mime_type) for mime_type, data in reply["images"])
    is_error = outcome is Outcome.TOOL_ERROR
    return ToolOutput(reply["text"], images, reply["structured"], is_error, reply["usage"])
