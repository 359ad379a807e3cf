"""Reading what a sandboxed process prints: never more than is wanted, never blocking, one piece a turn of the loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK = 1 << 16
_PIPE_CHUNKS = 16
"""Pieces that the largest pipe of an ordinary user holds: 1 MiB."""
_FLOOD = 16
"""A process that writes this many times what is kept is ended."""


class Output:
    """stdout and stderr of a process, which share one budget."""

    def __init__(self, out: int, err: int, on_flood: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_flood = on_flood
        self._kept = {out: bytearray(), err: bytearray()}
        self._open = [out, err]
        self._max_bytes = self._left = self._written = 0
        for descriptor in (out, err):
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, self._read_piece, descriptor)

    def begin(self, max_bytes: int) -> None:
        """Forgets what was read and keeps at most so much of what follows."""
        self._max_bytes = self._left = max_bytes
        self._written = 0
        for kept in self._kept.values():
            kept.clear()

    @property
    def exceeded(self) -> bool:
        """Whether more was written than is kept."""
        return self._written > self._max_bytes

    @property
    def flooded(self) -> bool:
        """Whether so much was written that the process is ended."""
        return self._written > _FLOOD * self._max_bytes

    def texts(self) -> tuple[str, str]:
        """stdout and stderr, with what has been written until now: a process that writes on is not waited for."""
        for descriptor in list(self._open):
            for _ in range(_PIPE_CHUNKS):
                if not self._read_piece(descriptor):
                    break
        out, err = (kept.decode(errors="replace") for kept in self._kept.values())
        return out, err

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self._open:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._open = []

    def _read_piece(self, descriptor: int) -> bool:
        """Takes one piece of what is there; whether more may be there."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        self._written += len(data)
        kept = data[: self._left]
        self._left -= len(kept)
        self._kept[descriptor] += kept
        if data and not self.flooded:
            return len(data) == _CHUNK
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._open.remove(descriptor)
        if self.flooded:
            self._on_flood()
        return False
