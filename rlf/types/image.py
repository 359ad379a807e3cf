"""A picture, and the text by which a task names one."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.image_header import read_header

_DATA_URI = "data:"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture of a prompt or in a result."""

    data: bytes
    """The encoded file."""
    mime_type: str

    @property
    def reference(self) -> str:
        """The whole picture as a `data:` URI."""
        return f"{_DATA_URI}{self.mime_type};base64,{base64.b64encode(self.data).decode()}"


def read_image(reference: str) -> Image:
    """The picture behind a file's path or a `data:` URI.

    Raises:
        RlfError: there is none, or it is of a kind that nothing here reads.
    """
    data = _of_uri(reference) if reference.startswith(_DATA_URI) else _of_file(Path(reference))
    header = read_header(data)
    if header is None:
        raise RlfError(f"{shown_reference(reference)}: no PNG, JPEG, GIF or WebP file. Convert the picture to one.")
    return Image(data, header.mime_type)


def shown_reference(reference: str) -> str:
    """A reference for a person: a path as it is, of a URI its beginning."""
    return f"{reference[:40]}..." if reference.startswith(_DATA_URI) else reference


def _of_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RlfError(f"{path}: the picture cannot be read: {error.strerror}. Check its path.") from error


def _of_uri(uri: str) -> bytes:
    head, _, body = uri.partition(",")
    try:
        if not head.endswith(";base64"):
            raise ValueError("it is not in base64")
        return base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error) as error:
        raise RlfError(f"{shown_reference(uri)}: the picture cannot be read: {error}. Write it in base64.") from error
