"""The packed part of a trajectory: tokens, action mask, sampler logprobs, turns; and its task, which others share.

Layout, little-endian, compressed with zstd: version u8, number of tokens T u32, tokens u32[T], action_mask bool[T],
rollout_logprobs float32[T], then JSON {turns, forks}. A turn is a list; its repairs and penalties are an object at its
end, absent where there is none, as forks are. Calls and parse failures are rows of their own, the task is a blob.
Version 1 was compressed with zlib and held the task's messages as `messages` beside the turns.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rlf.core.redact import Redactor
from rlf.lineage.blobs import compress, decompress
from rlf.types import Message, Repair, RepairKind, Task, Trajectory, Turn

_VERSION = 2
_HEAD = struct.Struct("<BI")
_ZLIB = 0x78
"""First byte of a payload of version 1."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded payload."""

    tokens: list[int]
    action_mask: list[bool]
    rollout_logprobs: list[float]
    messages: tuple[Message, ...]
    """Of version 1; empty since, for the task has them."""
    turns: tuple[Turn, ...]
    """Without calls and failures."""
    forks: tuple[int, ...]


def encode(trajectory: Trajectory, redactor: Redactor) -> bytes:
    """Packs a trajectory; logprobs are kept as float32, the precision they were sampled in."""
    num_tokens = len(trajectory.tokens)
    turns = [_packed(turn) for turn in trajectory.turns]
    parts = (
        _HEAD.pack(_VERSION, num_tokens),
        struct.pack(f"<{num_tokens}I", *trajectory.tokens),
        struct.pack(f"<{num_tokens}?", *trajectory.action_mask),
        struct.pack(f"<{num_tokens}f", *trajectory.rollout_logprobs),
        redactor.json({"turns": turns} | ({"forks": trajectory.forks} if trajectory.forks else {})).encode(),
    )
    return compress(b"".join(parts))


def decode(data: bytes) -> Payload:
    """Unpacks what `encode` packed, bit for bit."""
    raw = zlib.decompress(data) if data[0] == _ZLIB else decompress(data)
    version, num_tokens = _HEAD.unpack_from(raw)
    assert version in (1, _VERSION), f"payload of version {version}, expected at most {_VERSION}"
    body = struct.unpack_from(f"<{num_tokens}I{num_tokens}?{num_tokens}f", raw, _HEAD.size)
    text = json.loads(raw[_HEAD.size + 9 * num_tokens :])
    return Payload(
        tokens=list(body[:num_tokens]),
        action_mask=list(body[num_tokens : 2 * num_tokens]),
        rollout_logprobs=list(body[2 * num_tokens :]),
        messages=tuple(Message(role, content) for role, content in text.get("messages", ())),
        turns=tuple(_unpacked(*turn) for turn in text["turns"]),
        forks=tuple(text.get("forks", ())),
    )


def encode_task(task: Task, redactor: Redactor) -> bytes:
    """A task as JSON: the same bytes for the same row of a dataset."""
    return redactor.json(
        {
            "messages": [[message.role, message.content, *message.images] for message in task.messages],
            "answer": task.answer,
            "columns": task.columns,
            "tools": task.tools,
        }
    ).encode()


def decode_task(data: bytes, task_id: str, kind: str | None) -> Task:
    """The task that `encode_task` wrote."""
    known = json.loads(data)
    tools = known["tools"]
    return Task(
        id=task_id,
        messages=tuple(Message(role, content, tuple(images)) for role, content, *images in known["messages"]),
        answer=known["answer"],
        kind=kind,
        columns=known["columns"],
        tools=None if tools is None else tuple(tools),
    )


def _packed(turn: Turn) -> list[Any]:
    fields = [turn.start, turn.end, turn.observation_end, turn.text, turn.sample_s, turn.tools_s]
    extra: dict[str, Any] = {}
    if turn.repairs:
        extra["repairs"] = [[repair.kind, repair.position, repair.raw] for repair in turn.repairs]
    if turn.num_penalised:
        extra["num_penalised"] = turn.num_penalised
    return [*fields, extra] if extra else fields


def _unpacked(
    start: int,
    end: int,
    observation_end: int,
    text: str,
    sample_s: float,
    tools_s: float,
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> Turn:
    return Turn(
        start,
        end,
        observation_end,
        text=text,
        sample_s=sample_s,
        tools_s=tools_s,
        repairs=tuple(Repair(RepairKind(kind), position, raw) for kind, position, raw in extra.get("repairs", ())),
        num_penalised=extra.get("num_penalised", 0),
    )
