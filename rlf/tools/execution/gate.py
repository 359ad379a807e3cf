"""Permits: how many calls run at once and how often they start, shared fairly between trajectories.

Who waits is served round-robin by trajectory: one with a thousand parallel calls delays another's first call by one
permit, not by a thousand. Where nobody waits a permit costs a comparison.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TypeAlias

logger = logging.getLogger(__name__)

_RESERVED = 64
"""Descriptors kept for everything that is not a call: database, checkpoints, logs, the loop itself."""
_MIN_CALLS = 8
_OPEN = Path("/proc/self/fd")


class StartWindow:
    """At most `limit` starts within any `span_s`, exactly."""

    def __init__(self, limit: int, span_s: float) -> None:
        self._span_s = span_s
        self._limit = limit
        self._starts: deque[float] = deque(maxlen=limit)

    def wait_s(self, now: float) -> float:
        """Time until one more call may start; 0 when it may now."""
        if len(self._starts) < self._limit:
            return 0.0
        return max(0.0, self._starts[0] + self._span_s - now)

    def note_start(self, now: float) -> None:
        self._starts.append(now)


class TokenWindow:
    """No call starts while those of the last `span_s` have used up `limit` tokens; the calls under way may pass it."""

    def __init__(self, limit: int, span_s: float) -> None:
        self._span_s = span_s
        self._limit = limit
        self._used: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def wait_s(self, now: float) -> float:
        while self._used and self._used[0][0] + self._span_s <= now:
            self._total -= self._used.popleft()[1]
        excess = self._total - self._limit
        for when, num_tokens in self._used if excess >= 0 else ():
            excess -= num_tokens
            if excess < 0:
                return when + self._span_s - now
        return 0.0

    def note_tokens(self, now: float, num_tokens: float) -> None:
        self._used.append((now, num_tokens))
        self._total += num_tokens


Window: TypeAlias = StartWindow | TokenWindow


class Gate:
    """At most `max_concurrency` holders at once, and starts within the windows.

    Invariants: `num_held` is the number of permits given and not given back; `num_waiting` is the number of futures in
    `_waiting`, none of whose queues is empty; while somebody waits, either all permits are held or a timer is set.
    """

    def __init__(self, max_concurrency: int, windows: Sequence[Window] = ()) -> None:
        self.max_concurrency = max_concurrency
        self.num_held = 0
        self.num_waiting = 0
        self._windows = tuple(windows)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By trajectory; the first is served next."""
        self._timer: asyncio.TimerHandle | None = None

    def try_enter(self) -> bool:
        """Takes a permit if one is free and no call waits for it."""
        if self.num_waiting or self.num_held >= self.max_concurrency:
            return False
        if self._windows and not self._may_start():
            return False
        self.num_held += 1
        return True

    async def enter(self, trajectory_id: str) -> None:
        """Takes a permit, in turn with other trajectories. Every permit goes back by `leave`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(trajectory_id, deque()).append(future)
        self.num_waiting += 1
        self._grant_permits()
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # the permit came in the same moment
                self.leave()
            raise

    def leave(self) -> None:
        """Gives a permit back."""
        self.num_held -= 1
        if self.num_waiting:
            self._grant_permits()

    async def again(self) -> None:
        """Waits, with a permit in hand, until the windows let a further attempt start."""
        while not self._may_start():  # noqa: ASYNC110 - it waits for time to pass, not for a word
            await asyncio.sleep(self._wait_s())

    def spend(self, num_tokens: float) -> None:
        """Counts the tokens that a call used up."""
        for window in self._windows:
            if isinstance(window, TokenWindow):
                window.note_tokens(monotonic(), num_tokens)

    def close(self) -> None:
        """Forgets the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _may_start(self) -> bool:
        if self._wait_s() > 0:
            return False
        now = monotonic()
        for window in self._windows:
            if isinstance(window, StartWindow):
                window.note_start(now)
        return True

    def _wait_s(self) -> float:
        now = monotonic()
        return max((window.wait_s(now) for window in self._windows), default=0.0)

    def _grant_permits(self) -> None:
        """Gives free permits to who waits, one to each trajectory in turn."""
        while self.num_held < self.max_concurrency and (future := self._first_waiter()) is not None:
            if self._windows and not self._may_start():
                return self._set_timer()
            self._forget_first()
            self.num_held += 1
            future.set_result(None)
        return None

    def _first_waiter(self) -> asyncio.Future[None] | None:
        """Who is served next; those who were cancelled are forgotten on the way."""
        while self._waiting:
            future = next(iter(self._waiting.values()))[0]
            if not future.done():
                return future
            self._forget_first()
        return None

    def _forget_first(self) -> None:
        """Takes the first call out and puts its trajectory's others behind everybody else's."""
        trajectory_id = next(iter(self._waiting))
        queue = self._waiting.pop(trajectory_id)
        queue.popleft()
        self.num_waiting -= 1
        if queue:
            self._waiting[trajectory_id] = queue

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(self._wait_s(), 0.001), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._grant_permits()


def affordable_calls(wanted: int) -> int:
    """`wanted`, or as many calls as can hold a descriptor each under the process's limit, with a warning."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = max(_MIN_CALLS, soft - _num_open() - _RESERVED)
    if room >= wanted:
        return wanted
    text = "the process may open %d files, which allows %d tool calls at once, not %d; raise `ulimit -n`"
    logger.warning(text, soft, room, wanted)
    return room


def _num_open() -> int:
    return len(os.listdir(_OPEN)) if _OPEN.is_dir() else 0  # noqa: PTH208 - names alone are counted
