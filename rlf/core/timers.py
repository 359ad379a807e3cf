"""Deadlines, which are nearly always met: to set one and to take it back costs an eighth of asyncio's timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import TracebackType
from weakref import WeakKeyDictionary

from rlf.core.pauses import clock


class Deadline:
    """When something is to have ended; stands still while that waits its turn in a queue."""

    __slots__ = ("at", "ring", "timers", "waited_s")
    ring: Callable[[], object]

    def __init__(self, limit_s: float) -> None:
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
        self._handle: asyncio.TimerHandle | None = None
        self._look_at = inf
        """When the loop's timer is due; infinite while there is none."""

    def start(self, deadline: Deadline, ring: Callable[[], object]) -> None:
        """Calls `ring` at its time, unless it is stopped before."""
        deadline.timers, deadline.ring = self, ring
        self._waiting.add(deadline)
        if deadline.at < self._look_at:
            self._set_look(deadline.at)

    def stop(self, deadline: Deadline) -> None:
        """Takes it back; one that has rung is unaffected."""
        self._waiting.discard(deadline)

    def within(self, limit: float | Deadline) -> TimeLimit:
        """`with timers.within(limit_s):` is `async with asyncio.timeout(limit_s):`."""
        return TimeLimit(self, limit if isinstance(limit, Deadline) else Deadline(limit))

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


def within(limit_s: float) -> TimeLimit:
    """`with within(limit_s):` is `async with asyncio.timeout(limit_s):` without the time that the process is paused."""
    loop = asyncio.get_running_loop()
    timers = _timers_by_loop.get(loop)
    if timers is None:
        timers = _timers_by_loop[loop] = Timers()
    return timers.within(limit_s)


class TimeLimit:
    """A block that is cancelled when its time is up, and then ends in TimeoutError."""

    __slots__ = ("_deadline", "_is_up", "_num_cancels", "_task", "_timers")

    def __init__(self, timers: Timers, deadline: Deadline) -> None:
        task = asyncio.current_task()
        assert task is not None, "a time limit outside of a task"
        self._timers, self._deadline = timers, deadline
        self._task, self._num_cancels, self._is_up = task, task.cancelling(), False

    def __enter__(self) -> None:
        self._timers.start(self._deadline, self._cancel_block)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timers.stop(self._deadline)
        if self._is_up and self._task.uncancel() <= self._num_cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _cancel_block(self) -> None:
        self._is_up = True
        self._task.cancel()
