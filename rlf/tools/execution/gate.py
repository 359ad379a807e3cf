"""Permits: how many calls run at once and how often they start, shared fairly between trajectories.

Who waits is served round-robin by trajectory: one with a thousand parallel calls delays another's first call by one
permit, not by a thousand. Where nobody waits a permit costs a comparison.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from rlf.core.clocks import clock
from rlf.tools.kind import BreakerSpec
from rlf.types import Outcome

if TYPE_CHECKING:
    from rlf.tools.execution.windows import Window

logger = logging.getLogger(__name__)

_RESERVED = 64
"""Descriptors kept for everything that is not a call: database, checkpoints, logs, the loop itself."""
_MIN_CALLS = 8
_OPEN = Path("/proc/self/fd")


class ConcurrencyGate:
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
            if not future.cancelled():  # the permit came in the same moment: it would be lost to everybody
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
            window.note_start(now)
        return True

    def _wait_s(self) -> float:
        now = monotonic()
        return max((window.wait_s(now) for window in self._windows), default=0.0)

    def _grant_permits(self) -> None:
        """Gives free permits to who waits, one to each trajectory in turn."""
        while self.num_held < self.max_concurrency and (future := self._first_waiter()) is not None:
            # Asked before the waiter is taken out: `_may_start` notes a start, which must be of one that begins.
            if self._windows and not self._may_start():
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(max(self._wait_s(), 0.001), self._on_timer)
                return
            self._forget_first()
            self.num_held += 1
            future.set_result(None)

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

    def _on_timer(self) -> None:
        self._timer = None
        self._grant_permits()


def affordable_calls(wanted: int) -> int:
    """`wanted`, or as many calls as can hold a descriptor each under the process's limit, with a warning."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    num_open = len(os.listdir(_OPEN)) if _OPEN.is_dir() else 0  # noqa: PTH208 - names alone are counted
    room = max(_MIN_CALLS, soft - num_open - _RESERVED)
    if room >= wanted:
        return wanted
    text = "the process may open %d files, which allows %d tool calls at once, not %d; raise `ulimit -n`"
    logger.warning(text, soft, room, wanted)
    return room


# A circuit breaker: a dependency that is dead is not asked by every call, but now and then by one.

FAILURES: Final = frozenset(
    {Outcome.UNREACHABLE, Outcome.RATE_LIMITED, Outcome.SERVICE_ERROR, Outcome.GONE, Outcome.UNKNOWN, Outcome.INFRA}
)
"""Outcomes that say the tool did not answer. What a tool answers, an error too, shows that it lives."""


class Breaker:
    """Closed: calls pass. Open: they are refused. Half-open, after a pause: one passes and decides."""

    def __init__(self, spec: BreakerSpec, now: Callable[[], float] = perf_counter) -> None:
        self._spec = spec
        self._failures = FAILURES | {Outcome.TIMEOUT} if spec.timeouts else FAILURES
        self._now = now
        self._num_failures = 0
        """Failures in a row, during none of which another call was answered."""
        self._answered_at = float("-inf")
        self.probe_at: float | None = None
        """When the next probe may pass; None while closed, when there is no need to ask `refuses`."""
        self._probing = False

    def refuses(self) -> str | None:
        """Why a call may not pass; None lets it pass, and then `note` or `forget` must follow."""
        if self.probe_at is None:
            return None
        # One probe at a time: a dead service that takes each call's whole time is asked by one trajectory, not all.
        wait_s = self.probe_at - self._now()
        if wait_s > 0 or self._probing:
            return f"{self._num_failures} calls in a row failed; it is tried again every {self._spec.pause_s:g} s"
        self._probing = True
        return None

    def note(self, outcome: Outcome, started: float) -> bool:
        """Counts how a call that started then has ended; true when this one opened the breaker.

        Calls that started together fail together: their number says nothing where others were answered meanwhile.
        """
        if outcome not in self._failures:
            # Any answer closes it, also one to a call from before it opened: the service lives.
            self._answered_at = self._now()
            self._num_failures, self.probe_at, self._probing = 0, None, False
            return False
        if self._answered_at > started:  # that answer has closed the breaker too
            return False
        self._num_failures += 1
        was_closed = self.probe_at is None  # one report for each opening, not for each probe that fails
        if self._probing or self._num_failures >= self._spec.failures:
            self.probe_at, self._probing = self._now() + self._spec.pause_s, False
        return was_closed and self.probe_at is not None

    def forget(self) -> None:
        """A call that passed was cancelled: it says nothing, and the next probe may pass."""
        self._probing = False


# Watches the event loop: how late it is, and which tool holds it up.
#
# A coroutine that computes or calls something that blocks stops every trajectory at once, and no deadline can fire
# meanwhile. Only another thread can see that while it lasts. A tool is named for the time that it used or slept through
# itself, in one step: not for that of a machine that let others run, nor for many short steps in a row.

TASK_PREFIX = "tool "
"""How the names of the tasks that run tools begin."""
ALARM_S = 0.5
"""Time for which a tool may block the loop before it is reported."""
STUCK_S = 5.0
"""Time after which it is logged while it lasts, since it may never end."""
_BEAT_S = 0.02


class _Clocks(NamedTuple):
    """What the loop's thread did with its time, as sums from its beginning."""

    now_s: float
    cpu_s: float
    """Processor time of the thread."""
    others_s: float
    """Processor time of the process's other threads, which may have kept the interpreter's lock."""
    queue_s: float
    """Time that the thread was ready to run and no processor ran it; 0 where the system does not count it."""

    def held_s(self, since: _Clocks) -> float:
        """How long it was the thread's own doing that it was at one place: it computed, or slept there."""
        taken_s = (self.others_s - since.others_s) + (self.queue_s - since.queue_s)
        return max(self.cpu_s - since.cpu_s, self.now_s - since.now_s - taken_s)


class _Step(NamedTuple):
    """One step of a task, between two of its awaits."""

    task: asyncio.Task[object]
    beat: float
    """The beat that the loop was at: within one, no task runs twice."""
    since: _Clocks
    """As it was first seen."""


class _Culprit(NamedTuple):
    tool: str
    place: str
    """File and line of what it was doing."""


class LoopMonitor:
    """Started on the loop that it watches; `close` ends its thread."""

    def __init__(self, notify: Callable[[str, str], None] | None) -> None:
        """`notify` gets a level and a message once per tool, when the loop runs again; without it they are logged."""
        self._notify = notify
        self.lags_s: deque[float] = deque(maxlen=10_000)
        """How late the latest beats were, 50 a second."""
        self.num_blocks: Counter[str] = Counter()
        """Times that a tool held the loop for longer than ALARM_S, by tool."""
        self._culprit: tuple[_Culprit, _Clocks] | None = None
        self._logged = set[str]()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begins to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        # The system's id is asked for: a fork leaves `Thread.native_id` as it was.
        self._loop_thread = threading.get_ident(), threading.get_native_id()
        self._due = clock.now() + _BEAT_S
        self._timer = self._loop.call_later(_BEAT_S, self._measure_lag)
        self._thread = threading.Thread(target=self._watch_loop, name="rlf-loop-monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch."""
        self._timer.cancel()
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def _measure_lag(self) -> None:
        now = clock.now()
        self.lags_s.append(now - self._due)
        found, self._culprit = self._culprit, None
        if found is not None:
            culprit, since = found
            held_s = _read_clocks(*self._loop_thread).held_s(since)
            if held_s > ALARM_S:  # the system counts time in a queue once the thread runs again, as it does here
                self._report_block(culprit, held_s)
        self._due = now + _BEAT_S
        self._timer = self._loop.call_later(_BEAT_S, self._measure_lag)

    def _report_block(self, culprit: _Culprit, held_s: float) -> None:
        self.num_blocks[culprit.tool] += 1
        if self.num_blocks[culprit.tool] > 1:
            return
        text = f"tool {culprit.tool} blocked the event loop for {held_s:.1f} s at {culprit.place}; {_FIX}"
        if self._notify is None:
            logger.warning("%s", text)
        else:
            self._notify("warning", text)

    def _watch_loop(self) -> None:
        """On a thread of its own: finds who holds the loop while it is held."""
        step: _Step | None = None
        while not self._stopped.wait(ALARM_S / 5):
            beat, task = self._due, asyncio.current_task(self._loop)
            if task is None or clock.now() < beat:
                step = None
                continue
            clocks = _read_clocks(*self._loop_thread)
            if step is None or task is not step.task or beat != step.beat:
                step = _Step(task, beat, clocks)
                continue
            held_s, found = clocks.held_s(step.since), self._culprit
            if found is None and held_s > ALARM_S:
                culprit = self._find_culprit(task)
                self._culprit = None if culprit is None else (culprit, step.since)
            elif found is not None and held_s > STUCK_S and found[0].tool not in self._logged:
                self._logged.add(found[0].tool)
                logger.warning("tool %s blocks the event loop at %s; %s", *found[0], _FIX)

    def _find_culprit(self, task: asyncio.Task[object]) -> _Culprit | None:
        frame = sys._current_frames().get(self._loop_thread[0])
        if frame is None or not task.get_name().startswith(TASK_PREFIX):
            return None
        return _Culprit(task.get_name().removeprefix(TASK_PREFIX), f"{frame.f_code.co_filename}:{frame.f_lineno}")


def _read_clocks(ident: int, native: int) -> _Clocks:
    """Of the thread with this id, by Python's name and by the system's."""
    try:
        cpu_s = time.clock_gettime(time.pthread_getcpuclockid(ident))
        # Linux (scheduler/sched-stats): processor time, time in the queue of a processor, number of slices
        queue_s = int(Path(f"/proc/self/task/{native}/schedstat").read_text().split()[1]) / 1e9
    except (AttributeError, OSError, ValueError, IndexError):  # other systems
        return _Clocks(clock.now(), 0.0, 0.0, 0.0)
    return _Clocks(clock.now(), cpu_s, time.process_time() - cpu_s, queue_s)


_FIX = "use `isolation: thread` or `process` with `def`, or await slow work"
