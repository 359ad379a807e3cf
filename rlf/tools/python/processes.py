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
from collections.abc import Mapping
from typing import Any

from rlf.core import RlfError
from rlf.tools.failure import ToolFailure
from rlf.tools.kind import CallContext
from rlf.tools.python.worker import LENGTH
from rlf.types import Image, Outcome, ToolOutput

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 64_000_000
"""Longest reply that is read; with a longer one the worker is killed."""
_START_S = 60.0
_END_S = 2.0
_KILLED_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class ProcessRuntime:
    """Calls a function in worker processes, one call at a time each. Workers are made when needed and kept."""

    isolation = "process"
    ends_when_cancelled = True
    num_abandoned = 0

    def __init__(self, callable_name: str) -> None:
        self._callable = callable_name
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()

    async def open(self) -> None:
        """Starts a first worker. Raises RlfError when it cannot import the function."""
        try:
            self._idle.append(await self._start())
        except BaseException:
            await self.close()
            raise

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call; cancelling it kills its worker."""
        worker = self._idle.pop() if self._idle else await self._start()
        try:
            reply = await worker.ask(dict(arguments))
        except BaseException:
            self._lose(worker)
            raise
        self._idle.append(worker)
        return _output(reply)

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Holds nothing for a trajectory."""

    async def close(self) -> None:
        """Kills every worker; none is left when this returns."""
        for worker in self._all:
            worker.kill()
        await asyncio.gather(*(worker.ended() for worker in self._all))
        self._all.clear()

    async def _start(self) -> _Worker:
        worker = _Worker()
        self._all = {known for known in self._all if not known.is_gone} | {worker}
        try:
            await asyncio.wait_for(worker.start(self._callable), _START_S)
        except BaseException:
            self._lose(worker)
            raise
        return worker

    def _lose(self, worker: _Worker) -> None:
        worker.kill()
        logger.debug("worker %d of %s was ended", worker.process.pid, self._callable)


class _Worker:
    """One process and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "rlf.tools.python.worker", str(theirs.fileno()), str(os.getpid())]
            # Its own session: Ctrl-C is this process's to handle. What the tool prints goes to stderr.
            self.process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
            )

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
            raise await self._death() from fault
        return reply

    def kill(self) -> None:
        """Ends the process and whatever it started."""
        self._socket.close() if not hasattr(self, "_writer") else self._writer.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def ended(self) -> int | None:
        """The exit code, waited for; None when it does not come."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(self.process.wait, _END_S)
        return None

    async def _death(self) -> ToolFailure:
        code = await self.ended()
        if code is not None and -code not in _KILLED_FROM_OUTSIDE:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            return ToolFailure(Outcome.TOOL_ERROR, f"the tool ended its own process ({how})")
        return ToolFailure(Outcome.INFRA, "the process of the tool was killed from outside")


def _output(reply: Mapping[str, Any]) -> ToolOutput:
    outcome = Outcome(reply["outcome"])
    if outcome is not Outcome.OK and "images" not in reply:
        raise ToolFailure(outcome, reply["text"])
    images = tuple(Image(base64.b64decode(data), mime_type) for mime_type, data in reply["images"])
    is_error = outcome is Outcome.TOOL_ERROR
    return ToolOutput(reply["text"], images, reply["structured"], is_error, reply["usage"])
