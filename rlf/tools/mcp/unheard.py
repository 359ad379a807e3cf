"""Removes a server's unused notifications before the SDK reads them.

The SDK takes so long for each that a server's log would hold up its answers, and its calls would run out of time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pydantic_core import from_json

_METHODS: Final = (b"notifications/message", b"notifications/progress")
_MAX_EVENT_BYTES: Final = 8_000
"""A longer event is passed on as it comes: it is no line of a log."""
# Server-sent events end with an empty line, and all three kinds of line breaks are allowed.
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_MAX_END_BYTES: Final = 4
_DATA: Final = re.compile(rb"^data:(.*)$", re.MULTILINE)


def is_unheard(message: bytes) -> bool:
    """Whether a JSON-RPC message is such a notification."""
    if not any(method in message for method in _METHODS):
        return False
    try:
        value = from_json(message)
    except ValueError:
        return False
    return isinstance(value, dict) and "id" not in value and str(value.get("method")).encode() in _METHODS


class HeardEvents:
    """Server-sent events, passed in pieces, without unused ones."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_passing = False
        """Whether the event under way is a long one, of which a part was passed on."""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may be passed on after a further piece."""
        return b"".join(self._filter_events(chunk))

    def end(self) -> bytes:
        """The rest at the end of the stream."""
        return self._rest

    def _filter_events(self, chunk: bytes) -> Iterator[bytes]:
        text, start = self._rest + chunk, 0
        for end in _EVENT_END.finditer(text):
            event = text[start : end.end()]
            start = end.end()
            if self._is_passing or not _is_unheard_event(event):
                yield event
            self._is_passing = False
        self._rest = text[start:]
        if self._is_passing or len(self._rest) > _MAX_EVENT_BYTES:
            self._is_passing = True
            yield self._rest[: -_MAX_END_BYTES + 1]
            self._rest = self._rest[-_MAX_END_BYTES + 1 :]  # may be the first part of its end


def _is_unheard_event(event: bytes) -> bool:
    lines = _DATA.findall(event)
    return len(lines) == 1 and is_unheard(lines[0])
