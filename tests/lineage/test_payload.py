"""Packed tasks and parts of packed trajectories come back as they were."""

from __future__ import annotations

from rlf.core.redact import Redactor
from rlf.lineage.rows import PayloadReader, decode_payload, decode_task, encode, encode_task
from rlf.types import Message, Task

from .builders import trajectory


def test_a_task_keeps_which_message_shows_which_pictures():
    said = Message("user", "<image> or <image>?", ("/data/a.png", "/data/b.png"))
    task = Task("q", (Message("system", "Look."), said), "a", "colour", {"n": 1}, ("look",))
    assert decode_task(encode_task(task, Redactor({})), "q", "colour") == task


def test_parts_of_a_payload_are_those_of_the_whole():
    made = trajectory(3)
    data, reader = encode(made, Redactor({})), PayloadReader()
    assert reader.num_tokens(data) == len(made.tokens) == 150
    assert list(map(bool, reader.action_mask(data))) == made.action_mask
    whole = decode_payload(data)
    assert (whole["tokens"], whole["action_mask"]) == (made.tokens, made.action_mask)
    assert whole["rollout_logprobs"] == made.rollout_logprobs
