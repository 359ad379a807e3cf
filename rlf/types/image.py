"""Images of prompts and tool results."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a prompt or in a result."""

    data: bytes = field(metadata={"json": None})
    """The encoded file; JSON has its size."""
    mime_type: str
    JSON_PROPERTIES: ClassVar = ("size_bytes",)

    @property
    def size_bytes(self) -> int:
        """Of the encoded file."""
        return len(self.data)

    @property
    def reference(self) -> str:
        """The whole image as a `data:` URI."""
        return f"data:{self.mime_type};base64,{base64.b64encode(self.data).decode()}"
