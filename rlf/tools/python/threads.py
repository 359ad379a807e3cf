"""Threads that run calls, in a pool that a hung call cannot fill for others.

Each tool has a pool of its own, so a tool that hangs starves none but itself. A thread that hangs is left behind and
counted; no process waits for it at its end. When it wakes up after all it serves again.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from queue import SimpleQueue
from types import CoroutineType, MethodType
from typing import Any, TypeAlias, TypeVar

from rlf.core.callables import is_async
from rlf.core.clocks import Deadline
from rlf.core.text import describe
from rlf.tools.execution.detached import CancelledItself, DetachedTasks
from rlf.tools.kind import MAX_ABANDONED, CallContext, ToolRuntime
from rlf.tools.python.parameters import ArgumentAdapter, adapt
from rlf.tools.results import ToolFailure, outcome_of_fault, to_output, words_of
from rlf.types import Outcome, ToolOutput

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


# Runtimes of Python code in this process, on the event loop or on threads: a function, or a class that keeps state.

Function: TypeAlias = Callable[..., Any]

_OPEN_S = 60.0
"""Time that an instance has to open, which is not the time of the call that waits for it."""
_CLOSE_S = 5.0
"""Time that an instance has to close when the run ends."""


class OnLoop:
    """On the event loop itself; what the function returns is awaited if it can be."""

    isolation = "inline"
    ends_when_cancelled = False
    num_abandoned = 0

    async def call(self, function: Function, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        """`finish` of what the function returns, both run in this place; raises what they raise."""
        value = function(**arguments)
        return finish(await value if isinstance(value, CoroutineType) else value)

    def close(self) -> None:
        """Holds nothing."""


class OnThread:
    """On a thread; cancelling a call leaves its thread behind."""

    isolation = "thread"
    ends_when_cancelled = True

    def __init__(self, max_concurrency: int) -> None:
        self._pool = ThreadPool(max_concurrency + MAX_ABANDONED)

    @property
    def num_abandoned(self) -> int:
        return self._pool.num_abandoned

    async def call(self, function: Function, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        def work() -> T:
            try:
                return finish(function(**arguments))
            except ToolFailure:
                raise
            except BaseException as fault:  # a thread must outlive SystemExit; a future cannot hold StopIteration
                raise ToolFailure(outcome_of_fault(fault), describe(fault)) from fault

        return await self._pool.run(work)

    def close(self) -> None:
        """Ends the idle threads; busy ones end with their call."""
        self._pool.close()


Place: TypeAlias = OnLoop | OnThread
"""Runs functions."""


class FunctionRuntime(ToolRuntime):
    """Calls a function."""

    def __init__(self, function: Callable[..., Any], place: Place) -> None:
        self._function = adapt(function)
        self._place = place
        self.isolation = place.isolation
        self.ends_when_cancelled = place.ends_when_cancelled
        self.held.callback(place.close)

    @property
    def num_abandoned(self) -> int:
        return self._place.num_abandoned

    def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> Coroutine[Any, Any, ToolOutput]:
        return self._place.call(self._function, arguments, to_output)


class _Held:
    """An instance, made at its first use. The lock keeps one call from using it before another has opened it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.instance: Any = None


class ClassRuntime(ToolRuntime):
    """Calls instances of a class: one for the whole run, or one for each trajectory, which has one call at a time."""

    def __init__(self, made_by: type[Any], place: Place, *, by_trajectory: bool) -> None:
        self._class = made_by
        self._adapter = ArgumentAdapter(MethodType(made_by.__call__, made_by))
        self._place = place
        self._by_trajectory = by_trajectory
        self._held: dict[str, _Held] = {}
        self._opening: DetachedTasks | None = None
        self.isolation = place.isolation

    @property
    def num_abandoned(self) -> int:
        return self._place.num_abandoned

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call on the trajectory's instance, or on the run's."""
        held = self._held.setdefault(context.trajectory_id if self._by_trajectory else "", _Held())
        async with held.lock:
            if held.instance is None:  # in a process of its own, where nobody has made it ready
                held.instance = await self._open_instance()
            call = self._adapter.bind(held.instance)
            if self._by_trajectory:
                return await self._place.call(call, arguments, to_output)
        return await self._place.call(call, arguments, to_output)

    async def end_trajectory(self, trajectory_id: str) -> None:
        held = self._held.pop(trajectory_id, None) if self._by_trajectory else None
        if held is not None:
            await self._close_held(held)

    async def close(self) -> None:
        """Closes every instance, each within a time, then the place. Raises ToolFailure INFRA with what went wrong."""
        if self._opening is not None:
            await self._opening.close()
        detached, faults = DetachedTasks(), list[str]()
        while self._held:
            _, held = self._held.popitem()
            fault = await detached.fault_of(self._close_held(held), _CLOSE_S, f"closing {self._class.__name__}")
            if fault is not None:
                faults.append(words_of(fault))
        await detached.close()
        self._place.close()
        if faults:
            more = f" ({len(faults)} instances in all)" if len(faults) > 1 else ""
            raise ToolFailure(Outcome.INFRA, f"closing a {self._class.__name__}: {faults[0]}{more}")

    async def make_ready(self, trajectory_id: str) -> None:
        """Opens the instance that the next call needs. Raises ToolFailure INFRA where it cannot be, or not in time."""
        held = self._held.setdefault(trajectory_id if self._by_trajectory else "", _Held())
        if held.instance is not None:
            return
        async with held.lock:
            if held.instance is not None:
                return
            self._opening = self._opening or DetachedTasks()
            try:
                held.instance = await self._opening.run(
                    self._open_instance(), Deadline(_OPEN_S), f"opening {self._class.__name__}"
                )
            except (TimeoutError, CancelledItself) as late:
                text = f"{self._class.__name__} cannot be opened: not ready within {_OPEN_S:g} s"
                raise ToolFailure(Outcome.INFRA, text) from late

    async def _open_instance(self) -> Any:
        """A new instance. A class that cannot be made is no fault of the call."""
        try:
            instance = await self._place.call(self._class, {}, _return_value)
            await self._call_method(instance, "open")
        except asyncio.CancelledError:
            raise
        except BaseException as fault:
            text = f"{self._class.__name__} cannot be opened: {words_of(fault)}"
            raise ToolFailure(Outcome.INFRA, text) from fault
        return instance

    async def _close_held(self, held: _Held) -> None:
        if held.instance is not None:
            await self._call_method(held.instance, "close")

    async def _call_method(self, instance: Any, name: str) -> None:
        method = getattr(instance, name, None)
        if method is not None:
            place = OnLoop() if is_async(method) else self._place
            await place.call(method, {}, _return_value)


def _return_value(value: Any) -> Any:
    return value
