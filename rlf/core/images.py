"""Image files, and their type by their first bytes. Nothing here decodes one.

A reference is a file's path, or a `data:` URI that holds the whole image.
"""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import NamedTuple

from rlf.core.errors import RlfError

_DATA_URI = "data:"


class ImageFile(NamedTuple):
    """An image as it is stored."""

    data: bytes
    mime_type: str


class ImageHeader(NamedTuple):
    """Type and size of an image by its first bytes."""

    mime_type: str
    width: int
    height: int


_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_URL_SAFE = str.maketrans("-_", "+/")


def image_type(mime_type: str) -> str:
    """A type as read_header names it: in lower case, without parameters and other names that servers use."""
    name = mime_type.partition(";")[0].strip().lower()
    return _OTHER_NAMES.get(name, name)


def decode_base64(text: str) -> bytes:
    """The bytes of base64 in any of its ways: in lines (MIME), with the letters of URLs, without `=` at its end.

    Raises:
        ValueError: it is none.
    """
    compact = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
    return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)


def read_image_header(data: bytes) -> ImageHeader | None:
    """Type and size of a PNG, GIF, JPEG or WebP file; None for anything else and for what is cut short."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return ImageHeader("image/png", *struct.unpack_from(">II", data, 16))
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return ImageHeader("image/gif", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"\xff\xd8\xff"):
            return _read_jpeg(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _read_webp(data)
    except (struct.error, IndexError):
        return None
    return None


def _read_jpeg(data: bytes) -> ImageHeader | None:
    """Walks the segments to the frame header (ITU T.81, B.2.2)."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return ImageHeader("image/jpeg", width, height)
        at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    return None


def _read_webp(data: bytes) -> ImageHeader | None:
    """Lossy, lossless and extended form (RFC 9649)."""
    form = data[12:16]
    if form == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return ImageHeader("image/webp", width & 0x3FFF, height & 0x3FFF)
    if form == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return ImageHeader("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if form == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return ImageHeader("image/webp", width, height) if len(data) >= 30 else None
    return None


def read_image_file(reference: str) -> ImageFile:
    """The image behind a file's path or a `data:` URI.

    Raises:
        RlfError: there is none, or it is of a kind that nothing here reads.
    """
    data = _decode_uri(reference) if reference.startswith(_DATA_URI) else _of_file(Path(reference))
    header = read_image_header(data)
    if header is None:
        raise RlfError(f"{shown_reference(reference)}: no PNG, JPEG, GIF or WebP file. Convert the image to one.")
    return ImageFile(data, header.mime_type)


def shown_reference(reference: str) -> str:
    """A reference for a person: a path as it is, of a URI its beginning."""
    return f"{reference[:40]}..." if reference.startswith(_DATA_URI) else reference


def _of_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RlfError(f"{path}: the image cannot be read: {error.strerror}. Check its path.") from error


def _decode_uri(uri: str) -> bytes:
    head, _, body = uri.partition(",")
    try:
        if not head.endswith(";base64"):
            raise ValueError("it is not in base64")
        return decode_base64(body)
    except ValueError as error:
        raise RlfError(f"{shown_reference(uri)}: the image cannot be read: {error}. Write it in base64.") from error
