"""Frames between rlf and a sandboxed process: a JSON object and any number of byte strings.

A frame is two lengths (uint32, network order: JSON, all blobs), the JSON, the blobs. `sizes` in the JSON cuts the
blobs apart. Whoever reads sets the longest frame that it takes.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_HEADER = struct.Struct("!II")
HEADER_BYTES = _HEADER.size


class Frame(NamedTuple):
    """One message."""

    head: dict[str, Any]
    blobs: tuple[bytes, ...] = ()


class BadFrame(Exception):
    """The bytes are no frame, or one too long."""


def pack(head: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """A frame in bytes."""
    text = json.dumps({**head, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join([_HEADER.pack(len(text), sum(map(len, blobs))), text, *blobs])


def body_bytes(header: bytes, max_bytes: int) -> int:
    """How many bytes follow a header. Raises BadFrame above `max_bytes`."""
    total: int = sum(_HEADER.unpack(header))
    if total > max_bytes:
        raise BadFrame(f"a message of {total} bytes; the limit is {max_bytes}")
    return total


def unpack(frame: bytes) -> Frame:
    """A frame from its bytes, header included. Raises BadFrame."""
    text_bytes, _ = _HEADER.unpack(frame[:HEADER_BYTES])
    end = HEADER_BYTES + text_bytes
    try:
        head = json.loads(frame[HEADER_BYTES:end])
        sizes = head.pop("sizes")
        blobs = []
        for size in sizes:
            blobs.append(frame[end : end + size])
            end += size
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
        raise BadFrame(f"no JSON object with sizes: {fault}") from fault
    if end != len(frame):
        raise BadFrame("its sizes do not add up")
    return Frame(head, tuple(blobs))


def write_all(descriptor: int, frame: bytes) -> None:
    """Writes a frame to a blocking stream. Raises OSError where nobody reads it any more."""
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_frame(read: Callable[[int], bytes], max_bytes: int) -> Frame | None:
    """The next frame of a blocking stream; None at its end."""
    header = _read_exactly(read, HEADER_BYTES)
    if header is None:
        return None
    body = _read_exactly(read, body_bytes(header, max_bytes))
    return None if body is None else unpack(header + body)


def _read_exactly(read: Callable[[int], bytes], size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = read(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
