"""Notifications that nobody listens to never reach the SDK, and nothing else is lost."""

from __future__ import annotations

import json

import pytest

from rlf.tools.mcp.unheard import HeardEvents, is_unheard

LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"text": "notifications/message"}}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def event(message: object, end: str = "\n") -> bytes:
    return f"event: message{end}data: {json.dumps(message)}{end}{end}".encode()


@pytest.mark.parametrize(
    ("message", "unheard"), [(LOG, True), (ANSWER, False), (CHANGED, False), ({**LOG, "id": 1}, False)]
)
def test_only_notifications_of_logs_and_progress_are_unheard(message: object, unheard: bool) -> None:
    assert is_unheard(json.dumps(message).encode()) is unheard


@pytest.mark.parametrize("size", [1, 7, 1_000, 1_000_000])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_stream_keeps_every_other_event_however_it_is_cut(size: int, end: str) -> None:
    long = {**ANSWER, "result": {"text": "y" * 20_000}}
    kept = [event(CHANGED, end), event(long, end), b"id: 1\ndata:\n\n", event(ANSWER, end)]
    stream = b"".join(each + event(LOG, end) * 3 for each in kept) + b"data: cut"
    events = HeardEvents()
    heard = b"".join(events.feed(stream[at : at + size]) for at in range(0, len(stream), size)) + events.end()
    assert heard == b"".join(kept) + b"data: cut"
