"""An MCP server as a child process: lines of JSON-RPC on its stdin and stdout.

In place of the SDK's own transport because a server may be broken: one line has a bound, what is no message is
skipped, what is no readable answer ends its call, stderr is drained and its end kept for the fault, and no process of
its group outlives the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import struct
import sys
import termios
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import anyio
from mcp.client.stdio import get_default_environment
from mcp_types import JSONRPCError, JSONRPCResponse

from rlf.core.redact import Redactor
from rlf.tools.mcp.messages import LINE_END, Cutter, Inbound, OpenRequests, Outbound, Pulse, Streams, open_streams
from rlf.tools.mcp.server import McpServer

logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1 << 17
_TAIL_BYTES: Final = 2_000
_SHOWN_BYTES: Final = 200
_BUFFERED_MESSAGES: Final = 64
_LINES_A_TURN: Final = 50
"""Lines that are read before everything else on the event loop has its turn."""
_MAX_UNSENT: Final = 1_000
"""Messages for a server that reads none; beyond it, what it asks itself is not answered."""
_GRACE_S: Final = 0.5
"""Time to end after stdin closed, and again after SIGTERM."""


class Tail:
    """The end of what a process wrote on stderr."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, chunk: bytes) -> None:
        """Takes in more, and forgets the oldest."""
        self._bytes = (self._bytes + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    @property
    def last_line(self) -> str:
        """Its last line with anything on it."""
        lines = [line for line in self._bytes.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""


class _Protocol(SubprocessStreamProtocol):
    """Knows when the process has ended: asyncio's `wait` also waits for every child of it to close its pipes."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class _Child:
    """The server's process."""

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport, exited: asyncio.Event) -> None:
        self.process, self.transport, self.exited = process, transport, exited
        self.tail = Tail()

    @classmethod
    async def start(cls, server: McpServer) -> _Child:
        """Raises OSError."""
        assert server.command is not None, "a url has no process"
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(_CHUNK_BYTES, loop),
            _find_program(server.command),
            *server.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**get_default_environment(), **server.env},
            cwd=server.cwd,
            start_new_session=True,
        )
        return cls(Process(transport, protocol, loop), transport, protocol.exited)

    async def end_output(self) -> None:
        """Ends the reading of its output once it has ended, also where a child of it holds the pipes."""
        await self.exited.wait()
        await asyncio.sleep(_GRACE_S / 5)  # what is in the pipes is read
        for number in (1, 2):
            pipe = self.transport.get_pipe_transport(number)
            if pipe is not None:
                pipe.close()

    def has_unread(self) -> bool:
        """Whether it has left unread some of what it was sent: asyncio writes to a socket, which counts."""
        pipe = self.transport.get_pipe_transport(0)
        if not isinstance(pipe, asyncio.WriteTransport) or pipe.is_closing():
            return False
        try:
            found = fcntl.ioctl(pipe.get_extra_info("pipe").fileno(), termios.TIOCOUTQ, b"\0" * 4)
        except OSError:  # a system that does not count
            found = b"\0" * 4
        return pipe.get_write_buffer_size() > 0 or struct.unpack("i", found)[0] > 0

    def how_it_ended(self) -> str:
        code = self.process.returncode
        how = (
            "closed its output"
            if code is None
            else f"ended with exit code {code}"
            if code >= 0
            else f"was killed by signal {-code}"
        )
        return f"{how}: {self.tail.last_line}" if self.tail.last_line else how


@contextlib.asynccontextmanager
async def stdio_streams(server: McpServer, on_end: Callable[[str], None], pulse: Pulse) -> AsyncIterator[Streams]:
    """Starts the server and ends it, with every process of its group.

    Args:
        on_end: called with the reason when the server has ended or closed its stdout.
        pulse: notes the server's answers.

    Raises:
        OSError: it cannot be started.
    """
    with anyio.CancelScope(shield=True):  # cut off in the middle, asyncio would end the process but not its children
        child = await _Child.start(server)
    pulse.is_unread = child.has_unread
    with open_streams(_BUFFERED_MESSAGES) as (inbound, outbound, streams):
        waiting = OpenRequests(pulse.hear)
        errors = asyncio.create_task(_drain_stderr(child))
        tasks = [
            errors,
            asyncio.create_task(_pump_stdin(child, outbound, waiting)),
            asyncio.create_task(child.end_output()),
            asyncio.create_task(_pump_stdout(child, inbound, errors, waiting, on_end, server.redactor)),
        ]
        try:
            yield streams
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await _stop_process(child)
            finally:
                try:
                    with anyio.CancelScope(shield=True):
                        # Also when the wait itself was cancelled: nobody asks for an end once the loop is closed.
                        _signal_group(child.process, signal.SIGKILL)
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(child.exited.wait(), _GRACE_S)
                finally:
                    for task in tasks:
                        task.cancel()
                    with contextlib.suppress(PermissionError):  # asyncio holds the pipes until a grandchild that
                        child.transport.close()  # inherited them ends, unless its transport is closed


def _find_program(command: str) -> str:
    """The program to start: one beside the Python that rlf runs with comes before those on PATH.

    So `python` has rlf's own packages, and a server that is installed beside rlf is found in a venv that is not active.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return shutil.which(command, path=path) or command


async def _pump_stdout(
    child: _Child,
    inbound: Inbound,
    errors: asyncio.Task[None],
    waiting: OpenRequests,
    on_end: Callable[[str], None],
    redactor: Redactor,
) -> None:
    """Passes on messages until stdout ends; once nobody listens, keeps reading so that the server can end."""
    assert child.process.stdout is not None, "started without a pipe"
    lines, num_skipped = Cutter(LINE_END), 0
    while chunk := await child.process.stdout.read(_CHUNK_BYTES):
        for number, line in enumerate(lines.feed(chunk), 1):
            if number % _LINES_A_TURN == 0:  # a chunk holds 60,000 of `{}`, a second's work in which no deadline fires
                await asyncio.sleep(0)
            messages = waiting.read(line)
            if messages is None:
                num_skipped += 1
                level = logging.WARNING if num_skipped == 1 else logging.DEBUG
                if logger.isEnabledFor(level):
                    start = (line if isinstance(line, bytes) else line.head)[:_SHOWN_BYTES].decode(errors="replace")
                    logger.log(level, "MCP server: not a message: %.80r", redactor.text(start))
                continue
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                for message in messages:
                    await inbound.send(message)
    await asyncio.wait((errors,), timeout=_GRACE_S / 5)  # the reason is on stderr
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.exited.wait(), _GRACE_S / 5)
    on_end(child.how_it_ended())
    inbound.close()


async def _pump_stdin(child: _Child, outbound: Outbound, waiting: OpenRequests) -> None:
    stdin = child.process.stdin
    assert stdin is not None, "started without a pipe"
    with contextlib.suppress(OSError):  # the server is gone: its stdout ends too, which is reported
        async for item in outbound:
            is_reply = isinstance(item.message, JSONRPCResponse | JSONRPCError)
            if is_reply and outbound.statistics().current_buffer_used > _MAX_UNSENT:
                continue
            waiting.note_sent(item.message)
            stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()


async def _drain_stderr(child: _Child) -> None:
    assert child.process.stderr is not None, "started without a pipe"
    while chunk := await child.process.stderr.read(_CHUNK_BYTES):
        child.tail.add(chunk)


async def _stop_process(child: _Child) -> None:
    """Closes stdin, then asks the group to end, then makes it; every wait has a bound."""
    assert child.process.stdin is not None, "started without a pipe"
    child.process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _signal_group(child.process, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.exited.wait(), _GRACE_S)
            return
    logger.warning("MCP server: process %d is still running after SIGKILL", child.process.pid)


def _signal_group(process: Process, number: int) -> None:
    """The server leads its group, so the group's id is its own pid, also when it has ended before its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
