"""An MCP server as a child process: lines of JSON-RPC on its stdin and stdout.

In place of the SDK's own transport because a server may be broken: one line has a bound, what is no message is
skipped, stderr is drained and its end kept for the fault, and no process of its group outlives the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

from rlf.core.redact import Redactor
from rlf.tools.mcp.server import McpServer
from rlf.tools.mcp.unheard import is_unheard
from rlf.tools.mcp.words import MAX_MESSAGE_BYTES, TOO_LARGE, too_large

logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1 << 17
_TAIL_BYTES: Final = 2_000
_EDGE_BYTES: Final = 200
"""Kept of each end of a line over the bound: enough to find the id of the request that it answers."""
_BUFFERED_MESSAGES: Final = 64
_LINES_A_TURN: Final = 50
"""Lines that are read before everything else on the event loop has its turn."""
_GRACE_S: Final = 0.5
"""Time to end after stdin closed, and again after SIGTERM."""
# Read from the bytes, so that a message that is too long can still be answered as the failure of its call.
_ID = re.compile(rb'"id"\s*:\s*(\d+)')

Inbound = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


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


@contextlib.asynccontextmanager
async def stdio_streams(server: McpServer, on_end: Callable[[str], None]) -> AsyncIterator[Streams]:
    """Starts the server and ends it, with every process of its group.

    Args:
        on_end: called with the reason when the server has closed its stdout.

    Raises:
        OSError: it cannot be started.
    """
    assert server.command is not None, "a url has no process"
    with anyio.CancelScope(shield=True):  # cut off in the middle, asyncio would end the process but not its children
        process = await asyncio.create_subprocess_exec(
            _find_program(server.command),
            *server.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**get_default_environment(), **server.env},
            cwd=server.cwd,
            start_new_session=True,
        )
    inbound, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFERED_MESSAGES)
    write_stream, outbound = anyio.create_memory_object_stream[SessionMessage](_BUFFERED_MESSAGES)
    tail = Tail()
    errors = asyncio.create_task(_drain_stderr(process, tail))
    tasks = [errors, asyncio.create_task(_pump_stdin(process, outbound))]
    tasks.append(asyncio.create_task(_pump_stdout(process, inbound, errors, tail, on_end, server.redactor)))
    try:
        yield read_stream, write_stream
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await _stop_process(process)
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await _kill_group(process)  # also when the wait itself is cancelled
            finally:
                for task in tasks:
                    task.cancel()
                for stream in (inbound, read_stream, write_stream, outbound):
                    stream.close()
                _close_transport(process)


def _find_program(command: str) -> str:
    """The program to start: one beside the Python that rlf runs with comes before those on PATH.

    So `python` has rlf's own packages, and a server that is installed beside rlf is found in a venv that is not active.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return shutil.which(command, path=path) or command


async def _pump_stdout(
    process: Process,
    inbound: Inbound,
    errors: asyncio.Task[None],
    tail: Tail,
    on_end: Callable[[str], None],
    redactor: Redactor,
) -> None:
    """Passes on messages until stdout ends; once nobody listens, keeps reading so that the server can end."""
    assert process.stdout is not None, "started without a pipe"
    lines, num_skipped = Lines(MAX_MESSAGE_BYTES), 0
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        for number, line in enumerate(lines.feed(chunk), 1):
            if number % _LINES_A_TURN == 0:  # a chunk holds 60,000 of `{}`, a second's work in which no deadline fires
                await asyncio.sleep(0)
            if isinstance(line, bytes) and is_unheard(line):
                continue
            message = _parse_message(line)
            if message is None:
                num_skipped += 1
                level = logging.WARNING if num_skipped == 1 else logging.DEBUG
                if logger.isEnabledFor(level):
                    start = (line if isinstance(line, bytes) else line.head)[:_EDGE_BYTES].decode(errors="replace")
                    logger.log(level, "MCP server: not a message: %.80r", redactor.text(start))
                continue
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await inbound.send(message)
    await asyncio.wait((errors,), timeout=_GRACE_S / 5)  # the reason is on stderr
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GRACE_S / 5)
    on_end(_how_it_ended(process, tail))
    inbound.close()


async def _pump_stdin(process: Process, outbound: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None, "started without a pipe"
    with contextlib.suppress(OSError):  # the server is gone: its stdout ends too, which is reported
        async for item in outbound:
            process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _drain_stderr(process: Process, tail: Tail) -> None:
    assert process.stderr is not None, "started without a pipe"
    while chunk := await process.stderr.read(_CHUNK_BYTES):
        tail.add(chunk)


async def _stop_process(process: Process) -> None:
    """Closes stdin, then asks the group to end, then makes it; every wait has a bound."""
    assert process.stdin is not None, "started without a pipe"
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _signal_group(process, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S)
            return
    logger.warning("MCP server: process %d is still running after SIGKILL", process.pid)


async def _kill_group(process: Process) -> None:
    """Ends what is left of the group, and waits for the server's end, which nobody asks for once the loop is closed."""
    _signal_group(process, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S)


def _signal_group(process: Process, number: int) -> None:
    """The server leads its group, so the group's id is its own pid, also when it has ended before its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _close_transport(process: Process) -> None:
    """asyncio holds the pipes until a grandchild that inherited them ends, unless its transport is closed."""
    transport = process._transport  # type: ignore[attr-defined]  # asyncio has no public way to it
    with contextlib.suppress(PermissionError):
        transport.close()


def _how_it_ended(process: Process, tail: Tail) -> str:
    code = process.returncode
    how = (
        "closed its output"
        if code is None
        else f"ended with exit code {code}"
        if code >= 0
        else f"was killed by signal {-code}"
    )
    return f"{how}: {tail.last_line}" if tail.last_line else how


class Oversized(NamedTuple):
    """A line over the bound, as far as it is kept."""

    head: bytes
    tail: bytes
    size_bytes: int


class Lines:
    """Cuts a stream of bytes into lines in linear time, holding no more than the bound however small the pieces are."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        """Of the line that has no end yet; only its last bytes once it is over the bound."""
        self._size_bytes = 0
        self._head = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | Oversized]:
        """The lines that a chunk completes, without empty ones."""
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            if piece or self._size_bytes:
                self._add_piece(piece)
                yield self._take_line()
        self._add_piece(rest)

    def _add_piece(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        self._rest += piece
        if self._size_bytes > self._max_bytes:
            self._head = self._head or bytes(self._rest[:_EDGE_BYTES])
            del self._rest[:-_EDGE_BYTES]

    def _take_line(self) -> bytes | Oversized:
        line, size_bytes, head = bytes(self._rest), self._size_bytes, self._head
        self._rest, self._size_bytes, self._head = bytearray(), 0, b""
        return line if size_bytes <= self._max_bytes else Oversized(head, line, size_bytes)


def _parse_message(line: bytes | Oversized) -> SessionMessage | None:
    """The message on a line; for a line over the bound the error that answers its request, where its id is found."""
    if isinstance(line, bytes):
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            return None
    ids = _ID.findall(line.tail.rpartition(b"}")[0][-40:]) or _ID.findall(line.head[:80])
    if not ids:
        return None
    error = ErrorData(code=TOO_LARGE, message=too_large(line.size_bytes))
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(ids[-1]), error=error))
