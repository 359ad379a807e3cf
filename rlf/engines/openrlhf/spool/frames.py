"""The written form of what agents record: frames of compressed JSON and numbers, one after the other in a file.

A frame is its payload's size and CRC-32, four bytes each, little-endian, and the payload: zstd over a line of JSON and,
behind it, a trajectory's numbers: token ids in four bytes, the action mask in one, log-probabilities in eight. A frame
counts once it is whole; a torn last one is left for later. Older files hold zlib in place of zstd; still older ones,
`*.jsonl`, lines of JSON.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import zstandard
from pydantic_core import PydanticSerializationError, to_json

from rlf.core.redact import Redactor
from rlf.engines.openrlhf.job.dataset import Purpose
from rlf.types.events import Notice
from rlf.types.score import Scored
from rlf.types.written import NUMBERS, VERSION, read, write

SUFFIX, OLD_SUFFIX = ".spool", ".jsonl"
_HEAD = struct.Struct("<II")
_LEVEL = 1
"""Of zstd: higher ones take several times the CPU for a tenth of the bytes."""
_ZLIB = 0x78
"""First byte of an older payload."""
_TYPES = ("i", "b", "d")
"""Of the numbers, in the order of NUMBERS."""
_SIZES = tuple(array(code).itemsize for code in _TYPES)
_LEFT_OUT: Any = {
    "trajectory": {
        **dict.fromkeys(NUMBERS, True),
        "images": True,
        "turns": {"__all__": {"calls": {"__all__": {"result": {"images"}}}}},
    }
}
"""Numbers, which follow, and images of results: the lineage keeps none."""


@dataclass(frozen=True, slots=True)
class Record:
    """One finished trajectory."""

    purpose: Purpose
    row: int
    """`index` of the dataset's row: the group, in training."""
    sample: int
    """Position within the group."""
    step: int | None
    """Training: the step that it is for. Evaluation: 0 before training, else None, for the agent cannot know."""
    time: float
    """Seconds since 1970 at its end."""
    scored: Scored
    again: bool = False
    """Training: whether something outside the policy broke it and it was played again: it is none of its group."""
    encoded: object = field(default=None, compare=False, repr=False)
    """What the lineage stores of it; None where that is not made yet. No frame has it."""


Line: TypeAlias = Record | Notice
"""What a frame holds."""


def to_frame(line: Line, redactor: Redactor) -> bytes:
    """A frame without secrets."""
    if isinstance(line, Notice):
        return _frame(redactor.json({"notice": [line.level, line.text, dict(line.data)]}).encode(), [])
    record, trajectory = line, line.scored.trajectory
    head = [VERSION, record.purpose, record.row, record.sample, record.step, record.time, record.again]
    numbers = [
        array("i", trajectory.tokens).tobytes(),
        bytes(map(bool, trajectory.action_mask)),
        array("d", trajectory.rollout_logprobs).tobytes(),
    ]
    scored = write(record.scored, without=_LEFT_OUT)
    text = _dump_json({"head": head, "num_tokens": len(trajectory.tokens), "scored": scored}, redactor)
    return _frame(text, numbers)


def _dump_json(values: dict[str, Any], redactor: Redactor) -> bytes:
    """The result of `redactor.json`, in a third of its time where there is no secret and all is plain."""
    try:
        text = to_json(values, inf_nan_mode="constants")
    except PydanticSerializationError:
        return redactor.json(values).encode()
    return redactor.json(values).encode() if redactor.finds(text.decode()) else text


def _frame(text: bytes, numbers: Sequence[bytes]) -> bytes:
    payload = _compressor().compress(b"\n".join((text, b"".join(numbers))))
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def _compressor() -> zstandard.ZstdCompressor:
    """This thread's own: making one takes longer than compressing a record."""
    if not hasattr(_of_thread, "compressor"):
        _of_thread.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    found: zstandard.ZstdCompressor = _of_thread.compressor
    return found


_of_thread = threading.local()


def read_frames(data: bytes, *, as_arrays: bool = False) -> Iterator[tuple[Line, int]]:
    """The whole frames that data begins with, each with the offset of its end.

    Args:
        as_arrays: whether a trajectory's numbers become arrays as the lineage keeps them, and its mask bytes of 0 and
            1, in a fifth of the time and memory of lists.

    Raises:
        ValueError: a frame differs from what was written.
    """
    start = 0
    while start + _HEAD.size <= len(data):
        size, checksum = _HEAD.unpack_from(data, start)
        body, end = start + _HEAD.size, start + _HEAD.size + size
        if not size or end > len(data):  # zeros are what a machine that lost power leaves of an unfinished write
            return
        payload = memoryview(data)[body:end]
        if zlib.crc32(payload) != checksum:
            raise ValueError("its checksum differs")
        yield _read_payload((zlib.decompress if payload[0] == _ZLIB else zstandard.decompress)(payload), as_arrays), end
        start = end


def cut_frames(file: int, start: int, end: int, size: int) -> Iterator[int]:
    """Offsets that cut the whole frames of an open file into pieces of about a size; the last one ends them."""
    first = at = start
    while at + _HEAD.size <= end:
        length = _HEAD.unpack(os.pread(file, _HEAD.size, at))[0]
        if not length or at + _HEAD.size + length > end:
            break
        at += _HEAD.size + length
        if at - first >= size:
            yield at
            first = at
    if at > first:
        yield at


def _read_payload(payload: bytes, as_arrays: bool) -> Line:
    text, _, numbers = payload.partition(b"\n")
    values = json.loads(text)
    if "notice" in values:
        return Notice(*values["notice"])
    record = _read_record(values, values["scored"]["trajectory"] | {name: [] for name in NUMBERS})
    start, found, num = 0, list[Any](), values["num_tokens"]
    for code, size in zip(_TYPES, _SIZES, strict=True):
        part = numbers[start : start + num * size]
        found.append(bytes(part) if code == "b" else array(code, part))
        start += num * size
    tokens, action_mask, logprobs = found
    if as_arrays:
        tokens, logprobs = array("I", tokens.tobytes()), array("f", logprobs)
    else:
        tokens, action_mask, logprobs = tokens.tolist(), list(map(bool, action_mask)), logprobs.tolist()
    trajectory = replace(record.scored.trajectory, tokens=tokens, action_mask=action_mask, rollout_logprobs=logprobs)
    return replace(record, scored=replace(record.scored, trajectory=trajectory))


def from_line(text: str | bytes) -> Line:
    """A line of a file from before frames. Raises ValueError for a record of another version."""
    values = json.loads(text)
    if "notice" in values:
        return Notice(*values["notice"])
    return _read_record(values, values["scored"]["trajectory"])


def _read_record(values: dict[str, Any], trajectory: dict[str, Any]) -> Record:
    version, purpose, *place = values["head"]
    if not 1 <= version <= VERSION:
        raise ValueError(f"a spool record of version {version}; this rlf reads versions 1 to {VERSION}")
    row, sample, step, time, *again = place  # version 1 has no `again`
    scored = read(Scored, values["scored"] | {"trajectory": trajectory})
    return Record(Purpose(purpose), row, sample, step, time, scored, *again)
