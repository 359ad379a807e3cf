"""Processes that read spool files, so that the one that follows a job and writes its lineage only takes what they made.

A record becomes what the lineage stores of it where it is read: decompressing, checking and compressing again are nine
tenths of the work. Little is read in this process; the processes start when more has come at once than one core reads
in a moment. Reading waits for the lineage, which holds 16 events at most; agents wait for neither: records lie on disk.
"""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from multiprocessing import get_context, parent_process
from operator import attrgetter
from pathlib import Path
from typing import Any

from rlf.core.errors import RunError
from rlf.engines.openrlhf.spool.frames import SUFFIX, Line, Record, cut_frames, from_line, read_frames
from rlf.types.score import Scored

Encode = Callable[[Scored], object]
"""Makes what the lineage stores of a trajectory. It is pickled."""

_HERE_BYTES = 4 * 2**20
"""Read at once in this process: some 400 trajectories of 2,000 tokens."""
_SPAN_BYTES = 2**20
_MAX_PROCESSES = 8


@dataclass(frozen=True, slots=True)
class Span:
    """Whole frames of one file, or an old file's lines."""

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
        self._processes: ProcessPoolExecutor | None = None

    def read(self, spans: Sequence[Span]) -> Iterator[tuple[Span, list[Line]]]:
        """The records of each span, in their order.

        Raises:
            RunError: a record is damaged or of another version, or a process was killed.
        """
        if self._processes is None and sum(span.end - span.start for span in spans) < _HERE_BYTES:
            yield from ((span, read_span(span, self._encode)) for span in spans)
            return
        if self._processes is None:
            context = get_context("spawn")
            self._processes = ProcessPoolExecutor(self._num, context, initializer=_end_with_parent)
        found = self._processes.map(read_packed, spans, [self._encode] * len(spans))
        try:
            yield from ((span, pickle.loads(packed)) for span, packed in zip(spans, found, strict=True))
        except BrokenProcessPool as error:
            raise RunError("a process that reads trajectories was killed; continue with `rlf resume`.") from error

    def close(self) -> None:
        """Ends the processes."""
        if self._processes is not None:
            self._processes.shutdown(cancel_futures=True)


def cut(path: Path, start: int, end: int) -> list[Span]:
    """The whole records of a file between two offsets, in spans of about a megabyte; of an old file in one."""
    with path.open("rb", buffering=0) as file:
        if path.suffix == SUFFIX:
            bounds = list(cut_frames(file.fileno(), start, end, _SPAN_BYTES))
        else:
            bounds = [start + size] if (size := os.pread(file.fileno(), end - start, start).rfind(b"\n") + 1) else []
    return [Span(path, *pair) for pair in pairwise((start, *bounds))]


def read_span(span: Span, encode: Encode | None) -> list[Line]:
    """The records of a span, each with what is stored of it. Raises RunError where one is damaged."""
    with span.path.open("rb") as file:
        file.seek(span.start)
        data = file.read(span.end - span.start)
    known, lines, frames = span.start, list[Line](), read_frames(data, as_arrays=encode is not None)
    try:
        for line, end in frames if span.path.suffix == SUFFIX else _read_lines(data):
            known = span.start + end
            lines.append(_encoded(line, encode))
    except ValueError as error:
        message = f"{span.path}: the record that begins at byte {known} cannot be read: {error}. Move the file away "
        raise RunError(f"{message}to continue without what follows there.") from error
    return lines


def _encoded(line: Line, encode: Encode | None) -> Line:
    return replace(line, encoded=encode(line.scored)) if encode and isinstance(line, Record) else line


def _read_lines(data: bytes) -> Iterator[tuple[Line, int]]:
    """The whole lines that data begins with, each with the offset of its end."""
    start = 0
    while end := data.find(b"\n", start) + 1:
        yield from_line(data[start:end]), end
        start = end


def _end_with_parent() -> None:
    """Ends this process with the one that started it, also when that is killed."""

    def wait() -> None:
        parent = parent_process()
        assert parent is not None, "a reading process without a parent"
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def read_packed(span: Span, encode: Encode | None) -> bytes:
    """`read_span` for another process, in few bytes that are quick to read."""
    packed = io.BytesIO()
    _Pickler(packed, 5).dump(read_span(span, encode))
    return packed.getvalue()


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
