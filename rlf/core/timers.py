"""Timers for deadlines, which are nearly always met: to set one and to take it back costs an eighth of asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import TracebackType
from typing import Protocol
from weakref import WeakKeyDictionary

from rlf.core.pauses import clock


class Waiting(Protocol):
    """What waits for a time."""

    at: float
    """When, by the clock that stands still while the process is paused."""

    @property
    def ring(self) -> Callable[[], object]:
        """What is called then."""


class Timer:
    """A call at a time."""

    __slots__ = ("at", "ring")

    def __init__(self, at: float, ring: Callable[[], object]) -> None:
        self.at = at
        self.ring = ring


class Timers:
    """Many timers of the loop that runs when this is made, by one timer of that loop.

    Invariant: while one waits, the loop's timer is set for it or for an earlier time.
    """

    def __init__(self) -> None:
        clock.start()
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Waiting] = set()
        self._handle: asyncio.TimerHandle | None = None
        self._look_at = inf
        """When the loop's timer is due; infinite while there is none."""

    def start(self, timer: Waiting) -> None:
        """Rings it at its time, unless it is stopped before."""
        self._waiting.add(timer)
        if timer.at < self._look_at:
            self._set_look(timer.at)

    def stop(self, timer: Waiting) -> None:
        """Cancels it; one that has rung is unaffected."""
        self._waiting.discard(timer)

    def within(self, limit_s: float) -> TimeLimit:
        """`with timers.within(limit_s):` is `async with asyncio.timeout(limit_s):`."""
        return TimeLimit(self, limit_s)

    def _set_look(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._look_at = at
        self._handle = self._loop.call_later(at - clock.now(), self._run_due)

    def _run_due(self) -> None:
        self._handle, self._look_at = None, inf
        now = clock.now()
        due = [timer for timer in self._waiting if timer.at <= now]
        self._waiting.difference_update(due)
        if self._waiting:
            self._set_look(min(timer.at for timer in self._waiting))
        for timer in due:
            timer.ring()


_timers_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Timers] = WeakKeyDictionary()


def within(limit_s: float) -> TimeLimit:
    """`with within(limit_s):` is `async with asyncio.timeout(limit_s):` without the time that the process is paused."""
    loop = asyncio.get_running_loop()
    timers = _timers_by_loop.get(loop)
    if timers is None:
        timers = _timers_by_loop[loop] = Timers()
    return timers.within(limit_s)


class TimeLimit:
    """A block that is cancelled when its time is up, and then ends in TimeoutError."""

    __slots__ = ("_is_up", "_num_cancels", "_task", "_timers", "at")

    def __init__(self, timers: Timers, limit_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "a time limit outside of a task"
        self._timers, self._task, self._num_cancels, self._is_up = timers, task, task.cancelling(), False
        self.at = clock.now() + limit_s

    def __enter__(self) -> None:
        self._timers.start(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timers.stop(self)
        if self._is_up and self._task.uncancel() <= self._num_cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def ring(self) -> None:
        """Cancels the block."""
        self._is_up = True
        self._task.cancel()


class Hold:
    """Lets a time limit stand still while what it bounds waits its turn in a queue. Does nothing before it is set."""

    __slots__ = ("_timer", "_timers", "waited_s")

    def __init__(self) -> None:
        self._timers: Timers | None = None
        self._timer: Waiting | None = None
        self.waited_s = 0.0
        """How long it has stood still."""

    def set(self, timers: Timers, timer: Waiting) -> None:
        """Names the limit, which is started by who sets it."""
        self._timers, self._timer = timers, timer

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block whose time is not counted."""
        timers, timer = self._timers, self._timer
        if timers is None or timer is None:
            yield
            return
        began = clock.now()
        timers.stop(timer)
        try:
            yield
        finally:
            took_s = clock.now() - began
            self.waited_s += took_s
            timer.at += took_s
            timers.start(timer)
