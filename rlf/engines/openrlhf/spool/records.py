"""Spool files: what agents did, appended line by line, read by the process that started the run.

Each agent process appends to a file of its own, so that no two ever write to one. A record is on disk before the
trajectory that it tells of is handed to OpenRLHF: what a step was made from is known wherever the job stops. A line
counts once its line break is there; a torn last one is left for later, and for good when its writer is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import secrets
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rlf.core.errors import RunError
from rlf.core.redact import Redactor
from rlf.engines.openrlhf.job.dataset import Purpose
from rlf.types.events import Notice
from rlf.types.score import Scored
from rlf.types.written import VERSION, read, write

if TYPE_CHECKING:
    from rlf.engines.openrlhf.spool.send import Sender

_LEFT_OUT: Any = {"trajectory": {"images": True, "turns": {"__all__": {"calls": {"__all__": {"result": {"images"}}}}}}}
"""Images of results: the lineage keeps none."""


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


Line: TypeAlias = Record | Notice
"""What a line of a spool file holds."""


class SpoolWriter:
    """Appends records to one file; many at once share a write and a sync."""

    def __init__(
        self, folder: Path, hidden: Collection[str] = (), sender: Callable[[Path], Sender] | None = None
    ) -> None:
        """Opens a new file, `folder/<machine>-<pid>-<random>.jsonl`.

        Args:
            folder: made when absent.
            hidden: environment variables whose values are struck out, beside those whose names say so.
            sender: makes what copies the file to another machine. None: the file is read where it lies.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        self._file = self.path.open("ab", buffering=0)
        self._size = 0
        self._sender = None if sender is None else sender(self.path)
        self._redactor = Redactor(os.environ, hidden)
        self._thread = ThreadPoolExecutor(1, "rlf-spool")
        self._waiting: list[tuple[Line, asyncio.Future[int]]] = []
        """Each with the size of the file by which it is written."""
        self._writing: asyncio.Task[None] | None = None

    async def append(self, record: Record) -> None:
        """Returns when the record is on disk, and copied where that can be done now.

        Raises:
            RunError: it cannot be written.
        """
        size = await self._queue(record)
        if self._sender is not None:
            await self._sender.taken(size)

    def tell(self, notice: Notice) -> None:
        """Writes a notice as soon as may be."""
        self._queue(notice).add_done_callback(lambda done: done.cancelled() or done.exception())

    def _queue(self, line: Line) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((line, done))
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
        return done

    async def close(self) -> None:
        """Ends the writer; records that nobody waits for any more are dropped."""
        if self._sender is not None:
            await self._sender.close()
        self._thread.shutdown()
        self._file.close()

    async def _write_all(self) -> None:
        """Writes what waits, until nothing does."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            fault = await loop.run_in_executor(self._thread, self._write, [line for line, _ in batch])
            if self._sender is not None:
                self._sender.grow(self._size)
            for _, done in batch:
                if done.cancelled():
                    continue
                if fault is None:
                    done.set_result(self._size)
                else:
                    done.set_exception(RunError(f"{self.path}: a trajectory cannot be recorded: {fault.strerror}"))
        self._writing = None

    def _write(self, lines: list[Line]) -> OSError | None:
        try:
            data = memoryview(b"".join(f"{to_line(line, self._redactor)}\n".encode() for line in lines))
            while data:
                written = self._file.write(data)
                self._size += written
                data = data[written:]
            os.fsync(self._file.fileno())
        except OSError as fault:
            return fault
        return None


class SpoolReader:
    """Follows every file of a folder, also those that come later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        """Bytes read of each file: always to the end of a line."""

    def read(self) -> list[Line]:
        """What has come since the last call, file by file."""
        return [line for path in sorted(self._folder.glob("*.jsonl")) for line in self._read_file(path)]

    def _read_file(self, path: Path) -> Iterator[Line]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                yield from_line(line)


def to_line(line: Line, redactor: Redactor) -> str:
    """A line as JSON, without secrets and without the line break."""
    if isinstance(line, Notice):
        return redactor.json({"notice": [line.level, line.text, dict(line.data)]})
    record = line
    scored = write(record.scored, without=_LEFT_OUT)
    head = [VERSION, record.purpose, record.row, record.sample, record.step, record.time, record.again]
    return redactor.json({"head": head, "scored": scored})


def from_line(text: str | bytes) -> Line:
    """What `to_line` wrote. Raises ValueError for a record of another version."""
    values = json.loads(text)
    if "notice" in values:
        return Notice(*values["notice"])
    version, purpose, *place = values["head"]
    if not 1 <= version <= VERSION:
        raise ValueError(f"a spool record of version {version}; this rlf reads versions 1 to {VERSION}")
    row, sample, step, time, *again = place  # version 1 has no `again`
    return Record(Purpose(purpose), row, sample, step, time, read(Scored, values["scored"]), *again)
