"""Reading what a sandboxed process writes: never more than is wanted, never blocking."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from rlf.sandbox.guest.wire import HEADER_BYTES, BadFrame, Frame, body_bytes, unpack

_CHUNK = 1 << 16
_FLOOD = 16
"""A process that writes this many times what is kept is ended."""


class Output:
    """stdout and stderr of a process, which share one budget."""

    def __init__(self, out: int, err: int, on_flood: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_flood = on_flood
        self._parts: dict[int, list[bytes]] = {out: [], err: []}
        self._open = [out, err]
        self._max_bytes = self._left = self._written = 0
        for descriptor in (out, err):
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, self._read_stream, descriptor)

    def begin(self, max_bytes: int) -> None:
        """Forgets what was read and keeps at most so much of what follows."""
        self._max_bytes = self._left = max_bytes
        self._written = 0
        for parts in self._parts.values():
            parts.clear()

    @property
    def exceeded(self) -> bool:
        """Whether more was written than is kept."""
        return self._written > self._max_bytes

    @property
    def flooded(self) -> bool:
        """Whether so much was written that the process is ended."""
        return self._written > _FLOOD * self._max_bytes

    def texts(self) -> tuple[str, str]:
        """stdout and stderr, with what has been written until now."""
        for descriptor in list(self._open):
            self._read_stream(descriptor)
        out, err = (b"".join(parts).decode(errors="replace") for parts in self._parts.values())
        return out, err

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self._open:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._open = []

    def _read_stream(self, descriptor: int) -> None:
        while not self.flooded:
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                break
            self._keep_data(descriptor, data)
            if len(data) < _CHUNK:
                return
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._open.remove(descriptor)
        if self.flooded:
            self._on_flood()

    def _keep_data(self, descriptor: int, data: bytes) -> None:
        self._written += len(data)
        kept = data[: self._left]
        self._left -= len(kept)
        if kept:
            self._parts[descriptor].append(kept)


class Channel:
    """Frames to and from a process."""

    def __init__(self, end: socket.socket, max_bytes: int, on_frame: Callable[[Frame | BadFrame], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = end
        self._max_bytes = max_bytes
        self._on_frame = on_frame
        self._buffer = bytearray()
        self._reading = True
        end.setblocking(False)
        self._loop.add_reader(end, self.read)

    async def send(self, frame: bytes) -> None:
        """Writes a whole frame; a process that is gone takes none, and its end is reported elsewhere."""
        try:
            sent = self._end.send(frame)
            if sent < len(frame):
                await self._loop.sock_sendall(self._end, memoryview(frame)[sent:])
        except BlockingIOError:
            await self._loop.sock_sendall(self._end, frame)
        except OSError:
            return

    def read(self) -> None:
        """Takes what is there and passes whole frames on."""
        while self._reading:
            try:
                data = self._end.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._stop_reading()
                return
            self._buffer += data
            self._pass_on()

    def close(self) -> None:
        """Gives the socket back."""
        self._stop_reading()
        self._end.close()

    def _pass_on(self) -> None:
        try:
            while len(self._buffer) >= HEADER_BYTES:
                whole = HEADER_BYTES + body_bytes(bytes(self._buffer[:HEADER_BYTES]), self._max_bytes)
                if len(self._buffer) < whole:
                    return
                frame = unpack(bytes(self._buffer[:whole]))
                del self._buffer[:whole]
                self._on_frame(frame)
        except BadFrame as fault:
            self._stop_reading()
            self._on_frame(fault)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._end)
