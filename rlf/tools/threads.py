"""Calls that run on threads, in a pool that a hung call cannot fill for others.

Each tool has a pool of its own, so a tool that hangs starves none but itself. Threads are daemons: one that hangs
is left behind, counted, and does not keep the process from ending. When it wakes up after all it serves again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, TypeAlias

from rlf.tools.failure import ToolFailure, describe
from rlf.tools.results import to_text
from rlf.types import Outcome

SPARE_THREADS = 64
"""Threads of a tool beyond its concurrency: as many calls may hang before new ones wait for a thread."""


class ThreadRuntime:
    """Calls a function on a thread, where its result is also made into text."""

    isolation = "thread"

    def __init__(self, function: Callable[..., Any], max_concurrency: int) -> None:
        self._function = function
        self._pool = ThreadPool(max_concurrency + SPARE_THREADS)

    @property
    def num_abandoned(self) -> int:
        """Threads that still run a call nobody waits for."""
        return self._pool.num_abandoned

    async def invoke(self, arguments: Mapping[str, Any], deadline_s: float) -> str:
        """Runs one call; cancelling it leaves the thread behind."""
        return await self._pool.run(lambda: self._call(arguments))

    def _call(self, arguments: Mapping[str, Any]) -> str:
        try:
            return to_text(self._function(**arguments))
        except ToolFailure:
            raise
        except BaseException as fault:  # a thread must outlive SystemExit, and a future cannot hold StopIteration
            raise ToolFailure(Outcome.TOOL_ERROR, describe(fault)) from fault

    async def close(self) -> None:
        """Ends the idle threads; busy ones end with their call."""
        self._pool.close()


class _Job:
    __slots__ = ("abandoned", "done", "future", "loop", "started", "work")

    def __init__(self, work: Callable[[], str]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[str] = self.loop.create_future()
        self.started = False
        self.done = False
        self.abandoned = False

    def deliver(self, text: str | None, error: Exception | None) -> None:
        """Ends the future on its loop; a loop that is gone has nobody waiting."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._end, text, error)

    def _end(self, text: str | None, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            assert text is not None, "a job ended with neither text nor error"
            self.future.set_result(text)


_Inbox: TypeAlias = "SimpleQueue[_Job | None]"


class ThreadPool:
    """Daemon threads, made when a job finds none idle, at most `max_threads`; jobs beyond that wait in line.

    The lock keeps two invariants: a thread is in `_idle` or runs a job or is about to end; `num_abandoned` is the
    number of jobs that run and that nobody waits for.
    """

    def __init__(self, max_threads: int) -> None:
        self.max_threads = max_threads
        self.num_threads = 0
        self.num_abandoned = 0
        self._lock = threading.Lock()
        self._idle: list[_Inbox] = []
        self._waiting: deque[_Job] = deque()
        self._closed = False

    async def run(self, work: Callable[[], str]) -> str:
        """The result of `work`, which raises nothing but `Exception`.

        Cancelling gives the job up: it never starts, or its thread is left behind.
        """
        job = _Job(work)
        self._submit(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    def close(self) -> None:
        """Ends idle threads now and busy ones after their job. No job may be given afterwards."""
        with self._lock:
            self._closed = True
            for inbox in self._idle:
                inbox.put(None)
            self.num_threads -= len(self._idle)
            self._idle.clear()
            self._waiting.clear()

    def _submit(self, job: _Job) -> None:
        with self._lock:
            assert not self._closed, "a job for a closed pool"
            if self._idle:
                inbox = self._idle.pop()
            elif self.num_threads < self.max_threads:
                inbox = self._new_thread()
            else:
                self._waiting.append(job)
                return
            job.started = True
            inbox.put(job)

    def _new_thread(self) -> _Inbox:
        inbox: _Inbox = SimpleQueue()
        threading.Thread(target=self._serve, args=(inbox,), name="rlf-tool", daemon=True).start()
        self.num_threads += 1
        return inbox

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            if job.done:
                return
            if job.started:
                job.abandoned = True
                self.num_abandoned += 1
            elif job in self._waiting:
                self._waiting.remove(job)

    def _serve(self, inbox: _Inbox) -> None:
        job = inbox.get()
        while job is not None:
            following = self._run(job, inbox)
            del job  # an idle thread must not keep the last result alive
            job = following or inbox.get()

    def _run(self, job: _Job, inbox: _Inbox) -> _Job | None:
        text: str | None = None
        error: Exception | None = None
        try:
            text = job.work()
        except Exception as fault:  # noqa: BLE001 - delivered to whoever waits
            error = fault
        following = self._settle(job, inbox)
        job.deliver(text, error)
        return following

    def _settle(self, job: _Job, inbox: _Inbox) -> _Job | None:
        """Frees the thread before its result is delivered, so that who gets the result finds it idle."""
        with self._lock:
            job.done = True
            self.num_abandoned -= job.abandoned
            if self._closed:
                self.num_threads -= 1
                inbox.put(None)
            elif self._waiting:
                following = self._waiting.popleft()
                following.started = True
                return following
            else:
                self._idle.append(inbox)
        return None
