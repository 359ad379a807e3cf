"""Frames between processes of which one may be hostile or careless: a number, a JSON object and byte strings.

A frame is a header (the number, uint64; the lengths of head and body, uint32 each; network order), the head, which is
the JSON, and the body: each byte string after its own length. Who asks chooses the number, which the answer repeats,
and who reads bounds what it takes before it reads it. Sandboxed processes, workers of tools and worlds speak it, with
the standard library alone: the file system of a sandbox and environments of other packages have no more.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_HEADER = struct.Struct("!QII")
HEADER_BYTES = _HEADER.size
_LENGTH = struct.Struct("!I")
_HIGHEST, _KEPT = 1 << 12, 8
MAX_BLOBS = 1 << 16
"""Byte strings of a frame: empty ones take no room that a bound of bytes would notice, but time to cut."""


class BadFrame(Exception):
    """The bytes are no frame, or one that the reader does not take."""


class Bounds(NamedTuple):
    """What a reader takes."""

    head_bytes: int
    blob_bytes: int = 0
    """Of all byte strings together."""

    def excess(self, head: bytes, blobs: Sequence[bytes]) -> str:
        """Why a frame goes beyond them; empty when it does not."""
        size = sum(map(len, blobs))
        if len(head) > self.head_bytes:
            return f"{len(head)} bytes; at most {self.head_bytes} are read"
        if size > self.blob_bytes:
            return f"{size} bytes; at most {self.blob_bytes} are read"
        return f"{len(blobs)} parts; at most {MAX_BLOBS} are read" if len(blobs) > MAX_BLOBS else ""


class PacketHeader(NamedTuple):
    """What comes first, checked."""

    number: int
    head_bytes: int
    body_bytes: int

    @property
    def rest_bytes(self) -> int:
        """How many bytes of the frame follow."""
        return self.head_bytes + self.body_bytes


class Frame(NamedTuple):
    """One message."""

    number: int
    head: bytes
    blobs: tuple[bytes, ...] = ()

    def read(self) -> dict[str, Any]:
        """The object of the head, whose texts may hold lone surrogates. Raises BadFrame."""
        try:
            found = json.loads(self.head.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as fault:
            raise BadFrame(f"its head is no JSON: {type(fault).__name__}") from fault
        if not isinstance(found, dict):
            raise BadFrame(f"its head is a {type(found).__name__}, no object")
        return found


def write_head(head: Mapping[str, Any]) -> bytes:
    """The JSON of a head."""
    return json.dumps(head, ensure_ascii=False).encode("utf-8", "surrogatepass")


def pack(number: int, head: Mapping[str, Any] | bytes, blobs: Sequence[bytes] = ()) -> bytes:
    """A frame in bytes."""
    text = head if isinstance(head, bytes) else write_head(head)
    body = [part for blob in blobs for part in (_LENGTH.pack(len(blob)), blob)]
    return b"".join([_HEADER.pack(number, len(text), sum(map(len, body))), text, *body])


def read_header(header: bytes | bytearray, bounds: Bounds, number: int | None = None) -> PacketHeader:
    """Raises BadFrame for a frame beyond the bounds, or with another number than one that is given."""
    found = PacketHeader(*_HEADER.unpack(header))
    if number not in (None, found.number):
        raise BadFrame("a message that answers no request")
    if found.head_bytes > bounds.head_bytes:
        raise BadFrame(f"a message of {found.head_bytes} bytes; the limit is {bounds.head_bytes}")
    if found.body_bytes > bounds.blob_bytes + MAX_BLOBS * _LENGTH.size:
        raise BadFrame(f"a message with {found.body_bytes} bytes beside it; the limit is {bounds.blob_bytes}")
    return found


def unpack(header: PacketHeader, rest: bytes | bytearray) -> Frame:
    """A frame from what follows its header. Raises BadFrame."""
    with memoryview(rest) as view:
        head, at, blobs = bytes(view[: header.head_bytes]), header.head_bytes, list[bytes]()
        while at < len(view):
            if len(blobs) == MAX_BLOBS or at + _LENGTH.size > len(view):
                raise BadFrame("its lengths do not add up")
            start = at + _LENGTH.size
            at = start + int(_LENGTH.unpack(view[at:start])[0])
            blobs.append(bytes(view[start:at]))
    if at != header.rest_bytes:
        raise BadFrame("its lengths do not add up")
    return Frame(header.number, head, tuple(blobs))


def set_apart(descriptor: int) -> int:
    """The descriptor under a high number, which code that writes to or closes low ones by mistake does not meet.

    No protection from code that means harm, which a process that runs it cannot have.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    highest = _HIGHEST if soft == resource.RLIM_INFINITY else min(soft, _HIGHEST)
    apart = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(highest - _KEPT, 3))
    os.close(descriptor)
    return apart


def write_all(descriptor: int, frame: bytes) -> None:
    """Writes a frame to a blocking stream. Raises OSError where nobody reads it any more."""
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_frame(read: Callable[[int], bytes], bounds: Bounds) -> Frame | None:
    """The next frame of a blocking stream; None at its end. Raises BadFrame."""
    first = _read_exactly(read, HEADER_BYTES)
    if first is None:
        return None
    header = read_header(first, bounds)
    rest = _read_exactly(read, header.rest_bytes)
    return None if rest is None else unpack(header, rest)


def _read_exactly(read: Callable[[int], bytes], size: int) -> bytearray | None:
    found = bytearray()
    while len(found) < size:
        part = read(min(size - len(found), 1 << 20))
        if not part:
            return None
        found += part
    return found
