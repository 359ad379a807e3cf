"""Threads that run calls, in a pool that a hung call cannot fill for others.

Each tool has a pool of its own, so a tool that hangs starves none but itself. A thread that hangs is left behind and
counted; no process waits for it at its end. When it wakes up after all it serves again.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, TypeVar

from rlf.tools.kind import MAX_ABANDONED
from rlf.tools.results import ToolFailure, failure_by
from rlf.types import Outcome

T = TypeVar("T")


class _Job:
    __slots__ = ("abandoned", "done", "error", "future", "value", "work")

    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self.future = future
        self.value: Any = None
        self.error: Exception | None = None
        self.done = False
        self.abandoned = False

    def deliver(self) -> None:
        """Ends the future, on its loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


class ThreadPool:
    """Threads, made when a job finds none idle, at most `max_threads`. It serves the loop that gives it jobs.

    The lock keeps three invariants: `_num_idle` is the number of threads that take a job from the queue and have none
    promised, so that no job waits behind a hung one; `num_abandoned` is the number of jobs that run and that nobody
    waits for; while `_finished` holds jobs, the loop has been woken to deliver them. It is woken once for all that
    finish meanwhile: waking it costs more than a short call.
    """

    def __init__(self, max_threads: int) -> None:
        self.max_threads = max_threads
        self.num_threads = 0
        self.num_abandoned = 0
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._finished: list[_Job] = []
        self._num_idle = 0
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, which raises nothing but `Exception`. Cancelling leaves its thread behind.

        Raises:
            ToolFailure: every thread is busy, or the machine has none to give.
        """
        self._loop = asyncio.get_running_loop()
        job = _Job(work, self._loop.create_future())
        self._start_job(job)
        try:
            return await job.future  # type: ignore[no-any-return]  # what `work` returned
        except asyncio.CancelledError:
            with self._lock:
                if not job.done:
                    job.abandoned = True
                    self.num_abandoned += 1
            raise

    def close(self) -> None:
        """Ends idle threads now and busy ones after their job. No job may be given afterwards."""
        with self._lock:
            self._closed = True
            self.num_threads -= self._num_idle
            for _ in range(self._num_idle):
                self._jobs.put(None)
            self._num_idle = 0

    def _start_job(self, job: _Job) -> None:
        with self._lock:
            assert not self._closed, "a job for a closed pool"
            if self._num_idle:
                self._num_idle -= 1
            else:
                self._new_thread()
            self._jobs.put(job)

    def _new_thread(self) -> None:
        if self.num_threads >= self.max_threads:
            raise ToolFailure(Outcome.CIRCUIT_OPEN, f"all {self.num_threads} threads of the tool are busy")
        try:
            _thread.start_new_thread(self._serve_jobs, ())  # Thread.start() would hold up the loop until it runs
        except RuntimeError as fault:
            raise ToolFailure(Outcome.INFRA, "the machine has no thread left to run the tool on") from fault
        self.num_threads += 1

    def _serve_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._run_job(job)
            del job  # an idle thread must not keep the last result alive

    def _run_job(self, job: _Job) -> None:
        try:
            job.value = job.work()
        except Exception as fault:  # noqa: BLE001 - delivered to whoever waits
            job.error = fault
        if self._settle_job(job):
            with contextlib.suppress(RuntimeError):  # a loop that is gone has nobody waiting
                self._loop.call_soon_threadsafe(self._deliver_results)

    def _settle_job(self, job: _Job) -> bool:
        """Frees the thread, so that who gets the result finds it idle; true when the loop is to be woken."""
        with self._lock:
            job.done = True
            self.num_abandoned -= job.abandoned
            self._finished.append(job)
            if self._closed:
                self.num_threads -= 1
                self._jobs.put(None)
            else:
                self._num_idle += 1
            return len(self._finished) == 1

    def _deliver_results(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
        for job in finished:
            job.deliver()


class OnThread:
    """On a thread; cancelling a call leaves its thread behind."""

    isolation = "thread"
    ends_when_cancelled = True

    def __init__(self, max_concurrency: int) -> None:
        self._pool = ThreadPool(max_concurrency + MAX_ABANDONED)

    @property
    def num_abandoned(self) -> int:
        return self._pool.num_abandoned

    async def call(self, function: Callable[..., Any], arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        def work() -> T:
            try:
                return finish(function(**arguments))
            except ToolFailure:
                raise
            except BaseException as fault:  # a thread must outlive SystemExit; a future cannot hold StopIteration
                raise failure_by(fault) from fault

        return await self._pool.run(work)

    def close(self) -> None:
        """Ends the idle threads; busy ones end with their call."""
        self._pool.close()
