"""rlf's end of a socket to a process that may be hostile.

What a process says over its socket may be anything: `Channel` alone reads it, within bounds.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rlf.sandbox.guest.wire import HEADER_BYTES, BadFrame, Bounds, Frame, PacketHeader, pack, read_header, unpack

_CHUNK = 1 << 16


class _Expected(NamedTuple):
    number: int
    bounds: Bounds
    answer: asyncio.Future[Frame]


class Channel:
    """rlf's end of a socket to a process that may be hostile: it asks, and takes exactly one answer to each request.

    What comes is read in one bounded piece each time the socket is ready, so that no process keeps the event loop from
    its other work and its deadlines. Memory is taken only for bytes that came, and never beyond what an answer may
    have. The number is random: nothing that was sent before the request, or in answer to an earlier one, can answer it.
    Anything else that comes is a fault, after which nothing is read any more.
    """

    def __init__(
        self, end: socket.socket, on_fault: Callable[[], None] | None = None, on_end: Callable[[], None] | None = None
    ) -> None:
        """Begins to read.

        Args:
            on_fault: called once when the process sends what it may not, for which it is to be killed.
            on_end: called once when the process can send no more. Each request that waits, and the next, hears of both.
        """
        self._loop = asyncio.get_running_loop()
        self._end, self._on_fault, self._on_end = end, on_fault, on_end
        self._expected: deque[_Expected] = deque()
        self._buffer = bytearray()
        self._header: PacketHeader | None = None
        """Of the frame that is being read."""
        self._is_reading = True
        self.fault: BadFrame | None = None
        """What the process did that it may not; None while it behaves."""
        self._pidfd: int | None = None
        end.setblocking(False)
        self._loop.add_reader(end, self.read)

    def watch(self, pid: int) -> None:
        """Has the end of a process that nobody has waited for yet end the channel too. Linux alone can.

        What the process started may hold its end of the socket open for ever.
        """
        if sys.platform == "linux":
            with suppress(OSError):
                self._pidfd = os.pidfd_open(pid)
                self._loop.add_reader(self._pidfd, self._on_exit)

    def expect(self, number: int, bounds: Bounds) -> asyncio.Future[Frame]:
        """The next frame. The future has BadFrame where something else comes, and EOFError where nothing does."""
        answer: asyncio.Future[Frame] = self._loop.create_future()
        self._expected.append(_Expected(number, bounds, answer))
        if not self._is_reading:
            self._fail_expected()
        return answer

    async def ask(self, head: Mapping[str, Any], blobs: Sequence[bytes], bounds: Bounds) -> asyncio.Future[Frame]:
        """Sends a request; what its answer will be. A process that is gone takes none, which the future says."""
        number = secrets.randbits(64)
        answer = self.expect(number, bounds)
        frame = memoryview(pack(number, head, blobs))
        with suppress(OSError):  # it is gone: what it had sent before is still to be read, and then its end
            await self._loop.sock_sendall(self._end, frame)
        return answer

    async def answer(self, head: Mapping[str, Any], blobs: Sequence[bytes], bounds: Bounds) -> Frame:
        """The answer to a request. Raises BadFrame and EOFError as the future of `expect` does."""
        return await (await self.ask(head, blobs, bounds))

    def read(self) -> bool:
        """Takes one piece of what is there; whether it was part of an answer, so that more of it may be there."""
        if not self._is_reading:
            return False
        try:
            data = self._end.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end_reading()
            return False
        self._buffer += data
        try:
            while self._buffer:
                if not self._expected:
                    raise BadFrame("a message that nobody asked for")
                if not self._take_frame(self._expected[0]):
                    break
        except BadFrame as fault:
            self.fault = fault
            self._stop_reading()
            if self._on_fault is not None:
                self._on_fault()
        return self._is_reading

    def close(self) -> None:
        """Gives the socket back."""
        self._stop_reading()
        self._end.close()
        self._unwatch()

    def _on_exit(self) -> None:
        self._unwatch()
        while self.read():  # what it had sent before, up to the bound of the answer
            pass
        self._end_reading()

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _take_frame(self, expected: _Expected) -> bool:
        """Whether the frame is complete. Raises BadFrame."""
        if self._header is None:
            if len(self._buffer) < HEADER_BYTES:
                return False
            self._header = read_header(self._buffer[:HEADER_BYTES], expected.bounds, expected.number)
            del self._buffer[:HEADER_BYTES]
        size = self._header.rest_bytes
        if len(self._buffer) < size:
            return False
        # Nothing but the next frame's beginning may lie behind this one: a piece is short, and so is its copy.
        rest, self._buffer = self._buffer, self._buffer[size:]
        del rest[size:]
        frame, self._header = unpack(self._header, rest), None
        self._expected.popleft()
        if not expected.answer.done():
            expected.answer.set_result(frame)
        return True

    def _end_reading(self) -> None:
        if self._is_reading:
            self._stop_reading()
            if self._on_end is not None:
                self._on_end()

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._end)
            self._buffer.clear()
        self._fail_expected()

    def _fail_expected(self) -> None:
        for expected in self._expected:
            if not expected.answer.done():
                expected.answer.set_exception(self.fault or EOFError("the process can answer no more"))
                expected.answer.exception()  # who asked may have left: no complaint of asyncio's
        self._expected.clear()
