"""Server-sent events, from bytes in pieces of any size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from rlf.tools.mcp.messages import Oversized
from rlf.tools.mcp.words import MAX_MESSAGE_BYTES

# An event ends with an empty line, and all three kinds of line breaks are allowed.
_END: Final = re.compile(rb"\r\n\r\n|\n\r\n|\r\n\n|\n\n|\r\r")
_LONGEST_END: Final = 4
_BREAK: Final = re.compile(rb"\r\n|\n|\r")
_EDGE_BYTES: Final = 200


class Event(NamedTuple):
    """One event."""

    name: str
    data: bytes | Oversized
    id: str | None
    """By which the stream is continued after it, also where the event itself is of no use."""
    retry_s: float | None
    """Pause before the next attempt to continue the stream."""


class EventReader:
    """Cuts a stream into events, holding no more than the bound of one message."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """Of the event that has no end yet; only its last bytes once it is over the bound."""
        self._head = b""
        self._size_bytes = 0
        """Of what was dropped of it."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that a chunk completes."""
        look_from = max(0, len(self._rest) - _LONGEST_END + 1)  # a break may be cut
        self._rest += chunk
        start = 0
        for end in _END.finditer(self._rest, look_from):
            block = bytes(self._rest[start : end.start()])
            start = end.end()
            yield self._read_event(block)
        del self._rest[:start]
        if len(self._rest) > MAX_MESSAGE_BYTES or (self._head and len(self._rest) > _EDGE_BYTES):
            self._head = self._head or bytes(self._rest[:_EDGE_BYTES])
            self._size_bytes += len(self._rest) - _EDGE_BYTES
            del self._rest[:-_EDGE_BYTES]

    def _read_event(self, block: bytes) -> Event:
        if self._head:
            oversized = Oversized(self._head, block[-_EDGE_BYTES:], self._size_bytes + len(block))
            self._head, self._size_bytes = b"", 0
            return Event("message", oversized, None, None)
        name, data, number, retry_s = "message", list[bytes](), None, None
        for line in _BREAK.split(block):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            match field.removeprefix(b"\xef\xbb\xbf"):
                case b"event":
                    name = value.decode("utf-8", "replace")
                case b"data":
                    data.append(value)
                case b"id" if b"\0" not in value:
                    number = value.decode("utf-8", "replace")
                case b"retry" if value.isdigit():
                    retry_s = float(value) / 1000  # infinity for more digits than `int` takes
        return Event(name, b"\n".join(data), number, retry_s)
