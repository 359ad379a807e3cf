"""The part of a trajectory that no other table has, packed: tokens, action mask, sampler logprobs, turns; and its task.

Layout, little-endian, compressed with zstd: version u8, number of tokens T u32, tokens u32[T], action_mask bool[T],
rollout_logprobs float32[T], then JSON: the trajectory's written form without what has columns. Calls and parse failures
are rows of their own. A task is a content, shared by its rollouts and named by its hash: its bytes never change.
Before version 3 a turn was a list; version 1 was compressed with zlib and held the task's messages.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import zstandard
from pydantic_core import from_json

from rlf.core.redact import Redactor
from rlf.lineage.blobs import compress, decompress
from rlf.types import Message, Task, Trajectory
from rlf.types.written import NUMBERS, VERSION, write

_HEAD = struct.Struct("<BI")
_TURNS_ARE_OBJECTS = 3
"""First version without lists."""
_ZLIB = 0x78
"""First byte of a payload of version 1."""
_COLUMNS = ("id", "task", "sample_index", "stop", "answer", "error", "duration_s", "images")
_ELSEWHERE = dict.fromkeys((*NUMBERS, *_COLUMNS), True) | {"turns": {"__all__": {"calls", "failures"}}}
_OLD_TURN = ("start", "end", "observation_end", "text", "sample_s", "tools_s")
_OLD_REPAIR = ("kind", "position", "raw")


def encode(trajectory: Trajectory, redactor: Redactor) -> bytes:
    """Packs a trajectory; logprobs are kept as float32, the precision they were sampled in."""
    num_tokens = len(trajectory.tokens)
    parts = (
        _HEAD.pack(VERSION, num_tokens),
        _pack("I", trajectory.tokens),
        _pack_mask(trajectory.action_mask),
        _pack("f", trajectory.rollout_logprobs),
        redactor.json(write(trajectory, without=_ELSEWHERE)).encode(),
    )
    return compress(b"".join(parts))


def _pack_mask(mask: Sequence[bool]) -> bytes:
    """A byte for each; what was read from a spool is that already."""
    return mask if isinstance(mask, bytes) else bytes(map(bool, mask))


def _pack(code: str, numbers: Sequence[float]) -> bytes:
    """Numbers in four bytes each, little-endian."""
    packed = numbers[:] if isinstance(numbers, array) and numbers.typecode == code else array(code, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def decode(data: bytes) -> dict[str, Any]:
    """The written form of what `encode` packed, bit for bit; of version 1 with the task's `messages` in it."""
    raw = zlib.decompress(data) if data[0] == _ZLIB else decompress(data)
    version, num_tokens = _HEAD.unpack_from(raw)
    assert 1 <= version <= VERSION, f"payload of version {version}, expected at most {VERSION}"
    body = struct.unpack_from(f"<{num_tokens}I{num_tokens}?{num_tokens}f", raw, _HEAD.size)
    known: dict[str, Any] = json.loads(raw[_HEAD.size + 9 * num_tokens :])
    if version < _TURNS_ARE_OBJECTS:
        known["turns"] = [_old_turn(*turn) for turn in known["turns"]]
    numbers = [list(body[place * num_tokens : (place + 1) * num_tokens]) for place in range(len(NUMBERS))]
    return known | dict(zip(NUMBERS, numbers, strict=True))


class PayloadMeasure:
    """Counts the tokens of payloads, each read to its end; five times as fast as `decode`. For one thread."""

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor()

    def __call__(self, data: bytes) -> int:
        """Raises any exception where the bytes are damaged."""
        if data[0] == _ZLIB:
            return len(decode(data)["tokens"])
        raw = self._decompressor.decompress(data)
        version, num_tokens = _HEAD.unpack_from(raw)
        if version < _TURNS_ARE_OBJECTS:
            return len(decode(data)["tokens"])
        assert version <= VERSION, f"payload of version {version}, expected at most {VERSION}"
        from_json(raw[_HEAD.size + 9 * num_tokens :])
        return int(num_tokens)


def _old_turn(*fields: Any) -> dict[str, Any]:
    extra = fields[len(_OLD_TURN)] if len(fields) > len(_OLD_TURN) else {}
    repairs = [dict(zip(_OLD_REPAIR, repair, strict=True)) for repair in extra.get("repairs", ())]
    return dict(zip(_OLD_TURN, fields, strict=False)) | extra | {"repairs": repairs}


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
    messages = tuple(Message(role, content, tuple(images)) for role, content, *images in known["messages"])
    tools = None if known["tools"] is None else tuple(known["tools"])
    return Task(task_id, messages, known["answer"], kind, known["columns"], tools)
