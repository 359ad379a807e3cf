"""The packed part of a trajectory: tokens, action mask, sampler logprobs, turns and prompt.

Layout, little-endian, compressed with zlib: version u8, number of tokens T u32, tokens u32[T], action_mask bool[T],
rollout_logprobs float32[T], then JSON {messages, turns}. Calls and parse failures are rows of their own.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass

from rlf.lineage.redact import Redactor
from rlf.types import Message, Trajectory, Turn

_VERSION = 1
_HEAD = struct.Struct("<BI")
_LEVEL = 1
"""Fastest; the logprobs, half of the bytes, hardly compress at any level."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded payload."""

    tokens: list[int]
    action_mask: list[bool]
    rollout_logprobs: list[float]
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    """Without calls and failures."""


def encode(trajectory: Trajectory, redactor: Redactor) -> bytes:
    """Packs a trajectory; logprobs are kept as float32, the precision they were sampled in."""
    num_tokens = len(trajectory.tokens)
    messages = [[message.role, message.content] for message in trajectory.task.messages]
    turns = [
        [turn.start, turn.end, turn.observation_end, turn.text, turn.sample_s, turn.tools_s]
        for turn in trajectory.turns
    ]
    parts = (
        _HEAD.pack(_VERSION, num_tokens),
        struct.pack(f"<{num_tokens}I", *trajectory.tokens),
        struct.pack(f"<{num_tokens}?", *trajectory.action_mask),
        struct.pack(f"<{num_tokens}f", *trajectory.rollout_logprobs),
        redactor.json({"messages": messages, "turns": turns}).encode(),
    )
    return zlib.compress(b"".join(parts), _LEVEL)


def decode(data: bytes) -> Payload:
    """Unpacks what `encode` packed, bit for bit."""
    raw = zlib.decompress(data)
    version, num_tokens = _HEAD.unpack_from(raw)
    assert version == _VERSION, f"payload of version {version}, expected {_VERSION}"
    body = struct.unpack_from(f"<{num_tokens}I{num_tokens}?{num_tokens}f", raw, _HEAD.size)
    text = json.loads(raw[_HEAD.size + 9 * num_tokens :])
    return Payload(
        tokens=list(body[:num_tokens]),
        action_mask=list(body[num_tokens : 2 * num_tokens]),
        rollout_logprobs=list(body[2 * num_tokens :]),
        messages=tuple(Message(role, content) for role, content in text["messages"]),
        turns=tuple(
            Turn(start, end, observation_end, text=words, sample_s=sample_s, tools_s=tools_s)
            for start, end, observation_end, words, sample_s, tools_s in text["turns"]
        ),
    )
