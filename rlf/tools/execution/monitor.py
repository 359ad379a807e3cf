"""Watches the event loop: how late it is, and which tool holds it up.

A coroutine that computes or calls something that blocks stops every trajectory at once, and no deadline can fire
meanwhile. Only another thread can see that while it lasts. A tool is named for the time that it used or slept through
itself, in one step: not for that of a machine that let others run, nor for many short steps in a row.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rlf.core.clocks import clock

logger = logging.getLogger(__name__)

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
