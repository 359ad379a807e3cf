"""What a picture is, by its first bytes alone. Nothing here decodes one."""

from __future__ import annotations

import struct
from typing import NamedTuple


class Header(NamedTuple):
    """What a picture's first bytes say."""

    mime_type: str
    width: int
    height: int


def read_header(data: bytes) -> Header | None:
    """Type and size of a PNG, GIF, JPEG or WebP file; None for anything else and for what is cut short."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return Header("image/png", *struct.unpack_from(">II", data, 16))
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return Header("image/gif", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError):
        return None
    return None


def _jpeg(data: bytes) -> Header | None:
    """Walks the segments to the frame header (ITU T.81, B.2.2)."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Header("image/jpeg", width, height)
        at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    return None


def _webp(data: bytes) -> Header | None:
    """Lossy, lossless and extended form (RFC 9649)."""
    form = data[12:16]
    if form == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return Header("image/webp", width & 0x3FFF, height & 0x3FFF)
    if form == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return Header("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if form == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return Header("image/webp", width, height) if len(data) >= 30 else None
    return None
