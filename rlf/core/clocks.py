"""Deadlines, which are nearly always met: to set one and to take it back costs an eighth of asyncio's timer."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from math import inf
from time import perf_counter
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakKeyDictionary

# Time that this whole process was stopped or its machine asleep: no deadline counts it.
#
# A thread beats; where a beat comes late by more than a second and the process has used no processor meanwhile, it was
# stopped (SIGSTOP, Ctrl-Z, a frozen container) or starved. A suspended machine shows in the clock that counts its
# sleep. A tool that holds the event loop or the interpreter is no pause: the thread beats meanwhile, or the processor
# is used.

BEAT_S = 0.25
_PAUSE_S = 1.0
"""Lateness of a beat from which it counts as a pause."""
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


class PauseClock:
    """A monotonic clock that stands still while the process is paused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.num_pauses = 0
        """Pauses noticed so far."""
        self._lost_s = 0.0
        self._mark_time()

    def start(self) -> None:
        """Begins to beat, once in a process."""
        with self._lock:
            if self._thread is None:
                self._mark_time()
                self._thread = threading.Thread(target=self._run_thread, name="rlf-pause-clock", daemon=True)
                self._thread.start()

    def now(self) -> float:
        """Seconds, without those of pauses."""
        now_s = time.monotonic()
        if now_s - self._last_s > _PAUSE_S:
            self._notice_pause()
            now_s = time.monotonic()
        return now_s - self._lost_s

    def count_pauses(self) -> int:
        """Pauses so far, the latest included: what took longer than it might, and spans one, was not slow by itself."""
        self._notice_pause()
        return self.num_pauses

    def _run_thread(self) -> None:
        while True:
            time.sleep(BEAT_S)
            self._notice_pause()
            with self._lock:
                self._mark_time()

    def _mark_time(self) -> None:
        self._last_s, self._cpu_s, self._asleep_s = time.monotonic(), time.process_time(), _asleep_s()

    def _notice_pause(self) -> None:
        """Notices a pause, whichever thread comes first after it."""
        if self._thread is None:
            return
        if time.monotonic() - self._last_s > _PAUSE_S or _asleep_s() - self._asleep_s > _PAUSE_S:
            with self._lock:
                self._take_pause(time.monotonic())

    def _take_pause(self, now_s: float) -> None:
        late_s = now_s - self._last_s
        is_stopped = late_s > _PAUSE_S and time.process_time() - self._cpu_s < late_s / 2
        if is_stopped:
            self._lost_s += late_s
        if is_stopped or _asleep_s() - self._asleep_s > _PAUSE_S:
            self.num_pauses += 1
        self._mark_time()


def _asleep_s() -> float:
    """Time that the machine has slept since it was started; 0 where no clock counts it."""
    return 0.0 if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK) - time.monotonic()


def _restart_clock() -> None:
    """A child that was forked has no thread that beats."""
    clock.__init__()  # type: ignore[misc]  # as new


clock = PauseClock()
"""This process's."""
os.register_at_fork(after_in_child=_restart_clock)


class Deadline:
    """When something is to have ended; stands still while that waits its turn in a queue."""

    __slots__ = ("at", "ring", "timers", "use", "waited_s")
    ring: Callable[[], object]

    def __init__(self, limit_s: float, use: Timers | None = None) -> None:
        """Begins now. `use`: what a `TimeLimit` starts it by."""
        self.use = use
        self.at = clock.now() + limit_s
        """By the clock that stands still while the process is paused."""
        self.waited_s = 0.0
        """How long it has stood still."""
        self.timers: Timers | None = None
        """What calls `ring` at its time; None before it is started."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block whose time is not counted."""
        began = clock.now()
        if self.timers is not None:
            self.timers.stop(self)
        try:
            yield
        finally:
            took_s = clock.now() - began
            self.waited_s += took_s
            self.at += took_s
            if self.timers is not None:
                self.timers.start(self, self.ring)


class Timers:
    """Many deadlines by one timer of the loop that runs when this is made.

    Invariant: while one waits, the loop's timer is set for it or for an earlier time.
    """

    def __init__(self) -> None:
        clock.start()
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Deadline] = set()
        self.stop = self._waiting.discard
        """Takes a deadline back; one that has rung is unaffected."""
        self._handle: asyncio.TimerHandle | None = None
        self._look_at = inf
        """When the loop's timer is due; infinite while there is none."""

    def start(self, deadline: Deadline, ring: Callable[[], object]) -> None:
        """Calls `ring` at its time, unless it is stopped before."""
        deadline.timers, deadline.ring = self, ring
        self._waiting.add(deadline)
        if deadline.at < self._look_at:
            self._set_look(deadline.at)

    def within(self, limit_s: float) -> TimeLimit:
        """`with timers.within(limit_s):` is `async with asyncio.timeout(limit_s):`."""
        return TimeLimit(limit_s, self)

    def _set_look(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._look_at = at
        self._handle = self._loop.call_later(at - clock.now(), self._run_due)

    def _run_due(self) -> None:
        self._handle, self._look_at = None, inf
        now = clock.now()
        due = [one for one in self._waiting if one.at <= now]
        self._waiting.difference_update(due)
        if self._waiting:
            self._set_look(min(one.at for one in self._waiting))
        for one in due:
            one.ring()


_timers_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Timers] = WeakKeyDictionary()


def loop_timers() -> Timers:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    timers = _timers_by_loop.get(loop)
    if timers is None:
        timers = _timers_by_loop[loop] = Timers()
    return timers


def within(limit_s: float) -> TimeLimit:
    """`with within(limit_s):` is `async with asyncio.timeout(limit_s):` without the time that the process is paused."""
    return loop_timers().within(limit_s)


class TimeLimit(Deadline):
    """A block that is cancelled when its time is up, and then ends in TimeoutError."""

    __slots__ = ("_is_up", "_num_cancels", "_task")

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None and self.use is not None, "a time limit outside of a task, or without timers"
        self._task, self._num_cancels, self._is_up = task, task.cancelling(), False
        self.use.start(self, self._cancel_block)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self.use is not None, "it was entered"
        self.use.stop(self)
        if self._is_up and self._task.uncancel() <= self._num_cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _cancel_block(self) -> None:
        self._is_up = True
        self._task.cancel()


# Waits of this process, reported every half minute: a stall has a name.
#
# Calls of tools and requests to models say what they wait for; a collection of trajectories reports it while it plays.

logger = logging.getLogger(__name__)

REPORT_S = 30.0
"""Time between two reports, and the least wait that is reported."""


class Wait(Protocol):
    """One thing that is waited for."""

    @property
    def since(self) -> float:
        """When it began, as `perf_counter` counts."""

    @property
    def what(self) -> str:
        """What it is, e.g. `tool search (train/3/nq-7/0)`; asked for by reports alone."""


_waits: set[Wait] = set()
begin_wait, end_wait = _waits.add, _waits.discard


@dataclass(frozen=True, slots=True, eq=False)
class _NamedWait:
    what: str
    since: float


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Names what is waited for in the block."""
    wait = _NamedWait(what, perf_counter())
    begin_wait(wait)
    try:
        yield
    finally:
        end_wait(wait)


def open_waits() -> list[tuple[float, str]]:
    """Unix time at which each wait began, and what is waited for."""
    now, here = time.time(), perf_counter()
    return [(now - (here - wait.since), wait.what) for wait in list(_waits)]


def describe_waits(least_s: float) -> str | None:
    """Return a sentence about waits of at least so many seconds, the longest first; None without any."""
    now = perf_counter()
    long = sorted((wait.since, wait.what) for wait in list(_waits) if now - wait.since >= least_s)
    if not long:
        return None
    since, what = long[0]
    others = f", and for {len(long) - 1} more" if len(long) > 1 else ""
    return f"waiting for {what} for {now - since:.0f} s{others}"


@asynccontextmanager
async def reporting_waits(interval_s: float = REPORT_S) -> AsyncIterator[None]:
    """Logs every so often what has been waited for as long."""

    async def report() -> None:
        while True:
            await asyncio.sleep(interval_s)
            if (text := describe_waits(interval_s)) is not None:
                logger.warning("%s", text)

    reporter = asyncio.create_task(report())
    try:
        yield
    finally:
        reporter.cancel()


# Stages of this process's work that are under way, each with how much of it is done.

_numbers = itertools.count()
_open: dict[int, TimedStage] = {}


@dataclass(slots=True)
class TimedStage:
    """One of them."""

    what: str
    """E.g. `train 3`: the trajectories of a step or evaluation; `update 3`, `checkpoint 3`."""
    num_planned: int
    """0 where nothing is counted."""
    since: float
    """Unix time."""
    num_done: int = 0


@contextmanager
def stage(what: str, num_planned: int = 0) -> Iterator[TimedStage]:
    """Names what is done within the block, which counts what is done in `num_done`."""
    number = next(_numbers)
    _open[number] = TimedStage(what, num_planned, time.time())
    try:
        yield _open[number]
    finally:
        del _open[number]


def open_stages() -> list[TimedStage]:
    """Those under way, the oldest first."""
    return list(_open.values())
