"""A picture."""

from __future__ import annotations

import base64
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Image:
    """A picture of a prompt or in a result."""

    data: bytes
    """The encoded file."""
    mime_type: str

    @property
    def reference(self) -> str:
        """The whole picture as a `data:` URI."""
        return f"data:{self.mime_type};base64,{base64.b64encode(self.data).decode()}"
