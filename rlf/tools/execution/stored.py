"""Results as JSON, for recordings and for the cache on disk."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from rlf.types import Attempt, Image, Outcome, ToolResult


class StoredResult(BaseModel):
    """A ToolResult as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome
    text: str
    attempts: tuple[tuple[Outcome, float, str | None], ...] = ()
    queue_s: float = 0.0
    run_s: float = 0.0
    cached: bool = False
    truncated: bool = False
    size_bytes: int = 0
    isolation: str = ""
    images: tuple[tuple[str, str], ...] = ()
    """MIME type and base64 of the file."""
    structured: Any = None
    usage: Mapping[str, float] = {}
    sha256: str = ""
    original: str | None = None
    coerced: bool = False

    @classmethod
    def of(cls, result: ToolResult) -> StoredResult:
        """The result as it is stored."""
        return cls(
            outcome=result.outcome,
            text=result.text,
            attempts=tuple((attempt.outcome, attempt.run_s, attempt.error) for attempt in result.attempts),
            queue_s=result.queue_s,
            run_s=result.run_s,
            cached=result.cached,
            truncated=result.truncated,
            size_bytes=result.size_bytes,
            isolation=result.isolation,
            images=tuple((image.mime_type, base64.b64encode(image.data).decode()) for image in result.images),
            structured=result.structured,
            usage=result.usage,
            sha256=result.sha256,
            original=result.original,
            coerced=result.coerced,
        )

    def result(self) -> ToolResult:
        """The result as it was."""
        attempts = tuple(Attempt(*attempt) for attempt in self.attempts)
        images = tuple(Image(base64.b64decode(data), mime_type) for mime_type, data in self.images)
        plain = {name: getattr(self, name) for name in type(self).model_fields if name not in ("attempts", "images")}
        return ToolResult(**plain, attempts=attempts, images=images)
