"""Spool files: what agents did, appended frame by frame, read by the process that started the run.

Each agent process appends to a file of its own, so that no two ever write to one. A record is on disk before OpenRLHF
gets its trajectory: what a step was made from is known wherever the job stops. Text is redacted and compressed on the
writer's thread, and the reader opens only files that have grown.
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.core.errors import RunError
from rlf.core.redact import Redactor
from rlf.engines.openrlhf.spool.frames import OLD_SUFFIX, SUFFIX, Line, Record, to_frame
from rlf.engines.openrlhf.spool.pool import Span, SpoolPool, cut
from rlf.types.events import Notice

if TYPE_CHECKING:
    from rlf.engines.openrlhf.spool.send import Sender


class SpoolWriter:
    """Appends records to one file; many at once share a write and a sync."""

    def __init__(
        self, folder: Path, hidden: Collection[str] = (), sender: Callable[[Path], Sender] | None = None
    ) -> None:
        """Opens a new file, `folder/<machine>-<pid>-<random>.spool`.

        Args:
            folder: made when absent.
            hidden: environment variables whose values are struck out, beside those whose names say so.
            sender: makes what copies the file to another machine. None: the file is read where it lies.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
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
            try:
                fault = await loop.run_in_executor(self._thread, self._write, [line for line, _ in batch])
            except Exception as error:  # noqa: BLE001 - raised where it is waited for: nobody waits for this task
                fault = error
            if self._sender is not None:
                self._sender.grow(self._size)
            for _, done in batch:
                if done.cancelled():
                    continue
                if fault is None:
                    done.set_result(self._size)
                else:
                    done.set_exception(fault)
        self._writing = None

    def _write(self, lines: list[Line]) -> Exception | None:
        data = memoryview(b"".join(to_frame(line, self._redactor) for line in lines))
        whole = self._size + len(data)
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as fault:
            with suppress(OSError):  # what follows must not stand behind a torn frame
                self._file.truncate(self._size)
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

    def read(self) -> list[Line]:
        """What has come since the last call, file by file.

        Raises:
            RunError: a record is damaged, or of another version of rlf.
        """
        found = list[Line]()
        for span, lines in self._pool.read(self._new_spans()):
            self._offsets[span.path.name] = span.end
            found += lines
        return found

    def _new_spans(self) -> list[Span]:
        """The whole records that are not read yet."""
        try:
            with os.scandir(self._folder) as entries:
                sizes = {
                    entry.name: entry.stat().st_size for entry in entries if entry.name.endswith((SUFFIX, OLD_SUFFIX))
                }
        except FileNotFoundError:
            return []
        grown = sorted((name, size) for name, size in sizes.items() if size > self._offsets.get(name, 0))
        return [span for name, size in grown for span in cut(self._folder / name, self._offsets.get(name, 0), size)]
