"""Spool files: what agents did, appended frame by frame, read by the process that started the run.

Each agent process appends to files of its own, one after the other, so that no two ever write to one. A record is on
disk before OpenRLHF gets its trajectory: what a step was made from is known wherever the job stops. Text is redacted
and compressed on the writer's thread, and the reader opens only files that have grown. It removes a file that another
follows when all of its steps are recorded; one with an evaluation of a trained policy stays, since no record says of
which step it is.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import secrets
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.apps.openrlhf.spool_pool import SUFFIX, FilesOpened, Line, Record, Span, SpoolPool, cut, to_frames
from rlf.core.errors import RunError
from rlf.core.redact import Redactor
from rlf.types.events import Notice

if TYPE_CHECKING:
    from rlf.apps.openrlhf.transfer import Sender


_FULL_BYTES = 512 * 1024
"""Size from which on a file is followed by another."""
_GATHER_S = 0.25
"""Time in which records gather before they are written, while others are still played: a sync costs more CPU than a
record, and so does every switch between the event loop and the thread that writes.
"""


class SpoolWriter:
    """Appends records to files; many at once share a write and a sync."""

    def __init__(self, folder: Path, hidden: Collection[str] = (), sender: Callable[[], Sender] | None = None) -> None:
        """Opens the first file, `folder/<machine>-<pid>-<random>-0.spool`.

        Args:
            folder: made when absent.
            hidden: environment variables whose values are struck out, beside those whose names say so.
            sender: makes what copies the files to another machine. None: they are read where they lie.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._number = 0
        self._file = self.path.open("ab", buffering=0)
        self._start = 0
        """What was written before this file."""
        self._size = 0
        """Of all that is written."""
        self._sender = None if sender is None else sender()
        self._redactor = Redactor(os.environ, hidden)
        self._thread = ThreadPoolExecutor(1, "rlf-spool")
        self._waiting: list[tuple[Line, asyncio.Future[int]]] = []
        """Each with the size by which it is written."""
        self._writing: asyncio.Task[None] | None = None
        self._all_wait = asyncio.Event()
        self.num_played = 0
        """Trajectories that are played now, which the agent counts: where there is none, nothing more gathers."""

    @property
    def path(self) -> Path:
        """The file that is written now."""
        return self._folder / f"{self._name}-{self._number}{SUFFIX}"

    async def append(self, record: Record) -> None:
        """Returns when the record is on disk, and copied where that can be done now.

        Raises:
            RunError: it cannot be written.
        """
        size = await self._queue(record)
        if self._sender is not None:
            await self._sender.taken(size)

    def tell(self, notice: Notice | FilesOpened) -> None:
        """Writes what is no trajectory as soon as may be."""
        self._queue(notice).add_done_callback(lambda done: done.cancelled() or done.exception())

    def _queue(self, line: Line) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((line, done))
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
        if not self.num_played:
            self._all_wait.set()
        return done

    async def close(self) -> None:
        """Ends the writer once all is written."""
        self._all_wait.set()
        if self._writing is not None:
            await self._writing
        if self._sender is not None:
            await self._sender.close()
        self._thread.shutdown()
        self._file.close()

    async def _write_all(self) -> None:
        """Writes what waits, until nothing does."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_S):
                    await self._all_wait.wait()
            self._all_wait.clear()
            batch, self._waiting = self._waiting, []
            try:
                fault = await loop.run_in_executor(self._thread, self._write, [line for line, _ in batch])
            except Exception as error:  # noqa: BLE001 - raised where it is waited for: nobody waits for this task
                fault = error
            if self._sender is not None:
                self._sender.grow(self.path, self._start, self._size)
            for _, done in batch:
                if done.cancelled():
                    continue
                if fault is None:
                    done.set_result(self._size)
                else:
                    done.set_exception(fault)
        self._writing = None

    def _write(self, lines: list[Line]) -> Exception | None:
        data = memoryview(to_frames(lines, self._redactor))
        whole = self._size + len(data)
        try:
            if self._size - self._start >= _FULL_BYTES:
                following = (self._folder / f"{self._name}-{self._number + 1}{SUFFIX}").open("ab", buffering=0)
                self._file.close()
                self._file, self._number, self._start = following, self._number + 1, self._size
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as fault:
            with suppress(OSError):  # what follows must not stand behind a torn frame
                self._file.truncate(self._size - self._start)
            return RunError(f"{self.path}: a trajectory cannot be recorded: {fault.strerror}")
        self._size = whole
        return None


class SpoolReader:
    """Follows every file of a folder, also those that come later."""

    def __init__(self, folder: Path, pool: SpoolPool | None = None) -> None:
        """Reads nothing yet; without a pool in this process alone."""
        self._folder = folder
        self._pool = pool or SpoolPool()
        self._offsets: dict[str, int] = {}
        """Bytes read of each file: always to the end of a record."""
        self._last_steps: dict[str, float] = {}
        """The last step that a file has a record for; infinite where a record does not say."""

    def read(self) -> list[Line]:
        """The records that came since the last call, file by file.

        Raises:
            RunError: a record is damaged, or of another version of rlf.
        """
        found = list[Line]()
        for span, lines in self._pool.read(self._new_spans()):
            name = span.path.name
            self._offsets[name] = span.end
            self._last_steps[name] = max([self._last_steps.get(name, 0), *map(_step_of, lines)])
            found += lines
        return found

    def list_done(self, step: int) -> list[Path]:
        """The files that another follows and whose records are all for steps up to this one."""
        done = (name for name, last in self._last_steps.items() if last <= step and _next_name(name) in self._offsets)
        return [self._folder / name for name in done]

    def drop(self, paths: Sequence[Path]) -> None:
        """Removes files that `list_done` named."""
        for path in paths:
            path.unlink(missing_ok=True)
            del self._last_steps[path.name]

    def _new_spans(self) -> list[Span]:
        """The whole records that are not read yet."""
        try:
            with os.scandir(self._folder) as entries:
                sizes = {entry.name: entry.stat().st_size for entry in entries if entry.name.endswith(SUFFIX)}
        except FileNotFoundError:
            return []
        grown = sorted((name, size) for name, size in sizes.items() if size > self._offsets.get(name, 0))
        return [span for name, size in grown for span in cut(self._folder / name, self._offsets.get(name, 0), size)]


def _step_of(line: Line) -> float:
    """The step after which a line is recorded: an evaluation before training before the first one ends."""
    if isinstance(line, Record):
        return math.inf if line.step is None else max(1, line.step)
    return 0


def _next_name(name: str) -> str:
    """The file that follows; a file from before files were numbered has none."""
    stem, _, number = name.removesuffix(SUFFIX).rpartition("-")
    return f"{stem}-{int(number) + 1}{SUFFIX}" if number.isdecimal() else ""
