"""Processes that read spool files, so that the one that follows a job and writes its lineage only takes what they made.

A record becomes what the lineage stores of it where it is read: decompressing, checking and compressing again are nine
tenths of the work. Little is read in this process; the others start when more has come at once than one core reads in a
moment. Each gets orders on its stdin and ends with it, so that none outlives this process, and Ctrl-C does not reach
it. Reading waits for the lineage, which holds 16 events at most; agents wait for neither: records lie on disk.
"""

from __future__ import annotations

import gc
import io
import json
import math
import os
import pickle
import struct
import subprocess
import sys
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import zstandard
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from rlf.apps.openrlhf.dataset import Purpose
from rlf.core.errors import RunError
from rlf.core.plain_json import frozen
from rlf.core.redact import Redactor
from rlf.processes.child import start_apart
from rlf.types.events import Notice
from rlf.types.score import Scored
from rlf.types.written import FIRST_VERSION, NUMBERS, VERSION, read, write

# The written form of what agents record: frames of compressed JSON and numbers, one after the other in a file.
#
# A frame is its payload's size and CRC-32, four bytes each, little-endian, and the payload: zstd over records, each a
# line of JSON and, behind it, a trajectory's numbers: token ids in four bytes, the action mask in one and, in eight,
# log-probabilities. A frame counts once it is whole; a torn last one is left for later.

SUFFIX = ".spool"
_FRAME_LINES = 16
"""Records that are compressed together at most: those of a group have their prompt in common, and more of them would be
apart by more than zstd looks back.
"""
_VERSION = VERSION + 1
"""What is written. One more than of the nouns: up to 4 a frame held one record."""
_HEAD = struct.Struct("<II")
_LEVEL = 1
"""Of zstd: higher ones take several times the CPU for a tenth of the bytes."""
_TOKEN_BYTES = 4 + 1 + 8
_LEFT_OUT: Any = {
    "trajectory": {
        **dict.fromkeys(NUMBERS, True),
        "images": True,
        "turns": {"__all__": {"calls": {"__all__": {"result": {"images"}}}}},
    }
}
"""Numbers, which follow, and images of results: the lineage keeps none."""
_NUMBERS_OUT: Any = {"scored": {"trajectory": {*NUMBERS, "images"}}}


@frozen
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


class FilesOpened(NamedTuple):
    """Files that tools and rewards have opened in an agent's process."""

    opened: tuple[tuple[str, str], ...]
    """Each behind the file of the code that opened it."""


Line: TypeAlias = Record | Notice | FilesOpened
"""What a frame holds."""


def to_frames(lines: Sequence[Line], redactor: Redactor) -> bytes:
    """Frames without secrets."""
    frames, compressor = b"", zstandard.ZstdCompressor(level=_LEVEL)
    for start in range(0, len(lines), _FRAME_LINES):
        parts = [_to_bytes(line, redactor) for line in lines[start : start + _FRAME_LINES]]
        payload = compressor.compress(b"".join(parts))
        frames += _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
    return frames


def _to_bytes(line: Line, redactor: Redactor) -> bytes:
    if isinstance(line, Notice):
        return redactor.json({"notice": [line.level, line.text, dict(line.data)]}).encode() + b"\n"
    if isinstance(line, FilesOpened):
        return redactor.json({"opened": line.opened}).encode() + b"\n"
    record, trajectory = line, line.scored.trajectory
    head = [_VERSION, record.purpose, record.row, record.sample, record.step, record.time, record.again]
    text = _dump_json(_Text(head, len(trajectory.tokens), record.scored), redactor)
    tokens, logprobs = array("i", trajectory.tokens), array("d", trajectory.rollout_logprobs)
    return b"".join((text, b"\n", tokens, bytes(trajectory.action_mask), logprobs))


@frozen
class _Text:
    """The JSON of a record."""

    head: list[Any]
    num_tokens: int
    scored: Scored
    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")


def _dump_json(values: _Text, redactor: Redactor) -> bytes:
    """The result of `redactor.json`, made at once where there is no secret and all is plain."""
    # What holds images, also inside of an agent's call, is left to `write`.
    if not any(record.result.inner or record.result.images for record in values.scored.trajectory.calls):
        with suppress(PydanticSerializationError):
            text = _text_adapter().dump_json(values, exclude=_NUMBERS_OUT, exclude_defaults=True)
            if not redactor.finds(text.decode()):
                return text
    scored = write(values.scored, without=_LEFT_OUT)
    return redactor.json({"head": values.head, "num_tokens": values.num_tokens, "scored": scored}).encode()


@cache
def _text_adapter() -> TypeAdapter[_Text]:
    return TypeAdapter(_Text)


def read_frames(data: bytes, *, as_arrays: bool = False) -> Iterator[tuple[Line, int]]:
    """The lines of the whole frames that data begins with, each with the offset of its frame's end.

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
        for line in list(_read_payload(zstandard.decompress(payload), as_arrays)):
            yield line, end
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


def _read_payload(payload: bytes, as_arrays: bool) -> Iterator[Line]:
    at = 0
    while at < len(payload):
        end = payload.index(b"\n", at)
        values = json.loads(payload[at:end])
        at = end + 1
        if "notice" in values:
            yield Notice(*values["notice"])
        elif "opened" in values:
            yield FilesOpened(tuple((code, path) for code, path in values["opened"]))
        else:
            start, at = at, at + values["num_tokens"] * _TOKEN_BYTES
            yield _read_record(values, payload[start:at], as_arrays)


def _read_record(values: dict[str, Any], numbers: bytes, as_arrays: bool) -> Record:
    version, purpose, *place = values["head"]
    if not FIRST_VERSION <= version <= _VERSION:
        raise ValueError(f"a spool record of version {version}; this rlf reads versions {FIRST_VERSION} to {_VERSION}")
    row, sample, step, time, again = place
    trajectory = values["scored"]["trajectory"] | {name: [] for name in NUMBERS}
    scored = read(Scored, values["scored"] | {"trajectory": trajectory})
    num = values["num_tokens"]
    ids, mask, doubles = numbers[: 4 * num], numbers[4 * num : 5 * num], array("d", numbers[5 * num :])
    found: Any = (array("I", ids), mask, array("f", doubles))
    if not as_arrays:
        found = (array("i", ids).tolist(), list(map(bool, mask)), doubles.tolist())
    tokens, action_mask, logprobs = found
    trajectory = replace(scored.trajectory, tokens=tokens, action_mask=action_mask, rollout_logprobs=logprobs)
    return Record(Purpose(purpose), row, sample, step, time, replace(scored, trajectory=trajectory), again)


Encode = Callable[[Scored], object]
"""Makes what the lineage stores of a trajectory. It is pickled."""

_HERE_BYTES = 4 * 2**20
"""Read at once in this process: some 400 trajectories of 2,000 tokens."""
_SPAN_BYTES = 2**20
_MAX_PROCESSES = 8
_SIZE_BYTES = 8
"""Of an answer's size, which comes before it."""
_COMMAND = "import sys; from rlf.apps.openrlhf.spool_pool import answer_orders; answer_orders()"


@dataclass(frozen=True, slots=True)
class Span:
    """Whole frames of one file."""

    path: Path
    start: int
    end: int


class SpoolPool:
    """Reads spans, in processes where they are many. Close it."""

    def __init__(self, encode: Encode | None = None, num_processes: int | None = None) -> None:
        """Starts nothing yet.

        Args:
            encode: makes what the lineage stores, of which numbers are arrays then; None: records are read alone.
            num_processes: None: one for each core but two, of which one is for this process, and at most 8.
        """
        self._encode = encode
        self._num = num_processes or max(1, min(_MAX_PROCESSES, (os.cpu_count() or 1) - 2))
        self._threads: ThreadPoolExecutor | None = None
        """One for each process, which waits for it."""
        self._processes = list[subprocess.Popen[bytes]]()
        self._free = SimpleQueue[subprocess.Popen[bytes]]()

    @property
    def pids(self) -> list[int]:
        """Of the processes that read."""
        return [process.pid for process in self._processes]

    def read(self, spans: Sequence[Span]) -> Iterator[tuple[Span, list[Line]]]:
        """The records of each span, in their order.

        Raises:
            RunError: a record is damaged or of another version, or a process was killed.
        """
        size = sum(span.end - span.start for span in spans)
        if self._threads is None and size < _HERE_BYTES:
            yield from ((span, read_span(span, self._encode)) for span in spans)
        elif spans:
            together = math.ceil(len(spans) / max(self._num, size // _SPAN_BYTES))  # files grow by little at a time
            orders = [spans[start : start + together] for start in range(0, len(spans), together)]
            for order, answer in zip(orders, self._start().map(self._ask, orders), strict=True):
                yield from zip(order, answer, strict=True)

    def close(self) -> None:
        """Ends the processes."""
        for process in self._processes:
            process.kill()
            process.communicate()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _start(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._num, "rlf-spool-readers")
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            for _ in range(self._num):
                command, pipe = [sys.executable, "-c", _COMMAND], subprocess.PIPE
                process = start_apart(command, stdin=pipe, stdout=pipe, env=environment)
                self._processes.append(process)
                self._free.put(process)
                _send(process, self._encode)
        return self._threads

    def _ask(self, order: Sequence[Span]) -> list[list[Line]]:
        process = self._free.get()
        try:
            _send(process, order)
            answer = unpack_answer(_receive(process))
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise RunError("a process that reads trajectories was killed; continue with `rlf resume`.") from error
        finally:
            self._free.put(process)
        if isinstance(answer, RunError):
            raise answer
        return answer


def _receive(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None, "a process without stdout"
    size = int.from_bytes(process.stdout.read(_SIZE_BYTES), "little")
    answer = process.stdout.read(size)
    if not size or len(answer) < size:
        raise EOFError
    return answer


def unpack_answer(answer: bytes) -> list[list[Line]] | RunError:
    """Unpacks the answer of `pack_all`."""
    with _uncollected():
        found: list[list[Line]] | RunError = pickle.loads(answer)
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps Python from looking for garbage while many objects are made of which none is: a third of reading them."""
    global _num_uncollected, _collects
    with _collecting:
        _collects = gc.isenabled() if not _num_uncollected else _collects
        _num_uncollected += 1
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            _num_uncollected -= 1
            if not _num_uncollected and _collects:
                gc.enable()


_collecting = threading.Lock()
_num_uncollected = 0
"""Threads that read now."""
_collects = True
"""Whether Python looked for garbage before the first of them began."""


def _send(process: subprocess.Popen[bytes], message: object) -> None:
    assert process.stdin is not None, "a process without stdin"
    pickle.dump(message, process.stdin)
    process.stdin.flush()


def answer_orders() -> None:
    """Reads what each order on stdin names, until that is closed."""
    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else is an answer
    encode: Encode | None = pickle.load(orders)
    while (order := _next_order(orders)) is not None:
        try:
            answer = pack_all([read_span(span, encode) for span in order])
        except RunError as error:
            answer = pickle.dumps(error)
        answers.write(len(answer).to_bytes(_SIZE_BYTES, "little") + answer)
        answers.flush()


def _next_order(orders: BinaryIO) -> Sequence[Span] | None:
    try:
        order: Sequence[Span] = pickle.load(orders)
    except EOFError:
        return None
    return order


def pack_all(answer: object) -> bytes:
    """Records in few bytes that are quick to read."""
    packed = io.BytesIO()
    _Pickler(packed, 5).dump(answer)
    return packed.getvalue()


def cut(path: Path, start: int, end: int) -> list[Span]:
    """The whole records of a file between two offsets, in spans of about a megabyte."""
    with path.open("rb", buffering=0) as file:
        bounds = list(cut_frames(file.fileno(), start, end, _SPAN_BYTES))
    return [Span(path, *pair) for pair in pairwise((start, *bounds))]


def read_span(span: Span, encode: Encode | None) -> list[Line]:
    """The records of a span, each with what is stored of it. Raises RunError where one is damaged."""
    with span.path.open("rb") as file:
        file.seek(span.start)
        data = file.read(span.end - span.start)
    known, lines, frames = span.start, list[Line](), read_frames(data, as_arrays=encode is not None)
    try:
        for line, end in frames:
            known = span.start + end
            lines.append(replace(line, encoded=encode(line.scored)) if encode and isinstance(line, Record) else line)
    except ValueError as error:
        message = f"{span.path}: the record that begins at byte {known} cannot be read: {error}. Move the file away "
        raise RunError(f"{message}to continue without what follows there.") from error
    return lines


class _Pickler(pickle.Pickler):
    """Dataclasses as calls of their classes, which are read in half of the time."""

    def reducer_override(self, obj: Any) -> Any:
        if is_dataclass(obj) and not isinstance(obj, type):
            return type(obj), _read_fields(type(obj))(obj)
        return NotImplemented


@cache
def _read_fields(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(kind)]
    if len(names) == 1:
        return lambda value: (getattr(value, names[0]),)
    return attrgetter(*names)
