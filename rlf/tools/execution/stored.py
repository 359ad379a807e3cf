"""Results as JSON, for recordings and for the cache on disk."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

from rlf.types import Attempt, Image, InnerCall, InnerTurn, Outcome, ToolCall, ToolResult

StoredAttempt: TypeAlias = tuple[Outcome, float, str | None] | tuple[Outcome, float, str | None, Mapping[str, float]]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredCall(_Stored):
    """An InnerCall as JSON."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    result: StoredResult


class StoredTurn(_Stored):
    """An InnerTurn as JSON."""

    text: str
    reasoning: str = ""
    finish_reason: str = ""
    usage: Mapping[str, float] = {}
    calls: tuple[StoredCall, ...] = ()
    failures: tuple[str, ...] = ()

    @classmethod
    def of(cls, turn: InnerTurn) -> StoredTurn:
        """The turn as it is stored."""
        calls = tuple(
            StoredCall(
                id=made.id, name=made.call.name, arguments=made.call.arguments, result=StoredResult.of(made.result)
            )
            for made in turn.calls
        )
        return cls(
            text=turn.text,
            reasoning=turn.reasoning,
            finish_reason=turn.finish_reason,
            usage=turn.usage,
            calls=calls,
            failures=turn.failures,
        )

    def turn(self) -> InnerTurn:
        """The turn as it was."""
        calls = tuple(
            InnerCall(made.id, ToolCall(made.name, made.arguments), made.result.result()) for made in self.calls
        )
        return InnerTurn(self.text, self.reasoning, self.finish_reason, self.usage, calls, self.failures)


class StoredResult(_Stored):
    """A ToolResult as JSON."""

    outcome: Outcome
    text: str
    attempts: tuple[StoredAttempt, ...] = ()
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
    inner: tuple[StoredTurn, ...] = ()

    @classmethod
    def of(cls, result: ToolResult) -> StoredResult:
        """The result as it is stored."""
        return cls(
            outcome=result.outcome,
            text=result.text,
            attempts=tuple(map(attempt_values, result.attempts)),
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
            inner=tuple(map(StoredTurn.of, result.inner)),
        )

    def result(self) -> ToolResult:
        """The result as it was."""
        attempts = tuple(Attempt(*attempt) for attempt in self.attempts)
        images = tuple(Image(base64.b64decode(data), mime_type) for mime_type, data in self.images)
        inner = tuple(turn.turn() for turn in self.inner)
        made = ("attempts", "images", "inner")
        plain = {name: getattr(self, name) for name in type(self).model_fields if name not in made}
        return ToolResult(**plain, attempts=attempts, images=images, inner=inner)


def attempt_values(attempt: Attempt) -> StoredAttempt:
    """An attempt as it is stored: its usage only where there is some, as before there was any."""
    known = (attempt.outcome, attempt.run_s, attempt.error)
    return (*known, dict(attempt.usage)) if attempt.usage else known
