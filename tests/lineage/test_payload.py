"""Packed tasks come back as they were."""

from __future__ import annotations

from rlf.core.redact import Redactor
from rlf.lineage.rows import decode_task, encode_task
from rlf.types import Message, Task


def test_a_task_keeps_which_message_shows_which_pictures():
    said = Message("user", "<image> or <image>?", ("/data/a.png", "/data/b.png"))
    task = Task("q", (Message("system", "Look."), said), "a", "colour", {"n": 1}, ("look",))
    assert decode_task(encode_task(task, Redactor({})), "q", "colour") == task
