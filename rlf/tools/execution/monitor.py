"""Watches the event loop: how late it is, and which tool holds it up.

A coroutine that computes or calls something that blocks stops every trajectory at once, and no deadline can fire
meanwhile. Only another thread can see that while it lasts.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

logger = logging.getLogger(__name__)

TASK_PREFIX = "tool "
"""How the names of the tasks that run tools begin."""
ALARM_S = 0.5
"""Time for which a tool may block the loop before it is reported."""
STUCK_S = 5.0
"""Time after which it is logged while it lasts, since it may never end."""
_BEAT_S = 0.02


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
        self._culprit: _Culprit | None = None
        self._logged = set[str]()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begins to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._due = monotonic() + _BEAT_S
        self._timer = self._loop.call_later(_BEAT_S, self._measure_lag)
        self._thread = threading.Thread(target=self._watch_loop, name="rlf-loop-monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch."""
        self._timer.cancel()
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def _measure_lag(self) -> None:
        now = monotonic()
        lag_s = now - self._due
        self.lags_s.append(lag_s)
        culprit, self._culprit = self._culprit, None
        if culprit is not None:
            self._report_block(culprit, lag_s)
        self._due = now + _BEAT_S
        self._timer = self._loop.call_later(_BEAT_S, self._measure_lag)

    def _report_block(self, culprit: _Culprit, lag_s: float) -> None:
        self.num_blocks[culprit.tool] += 1
        if self.num_blocks[culprit.tool] > 1:
            return
        text = f"tool {culprit.tool} blocked the event loop for {lag_s:.1f} s at {culprit.place}; {_FIX}"
        if self._notify is None:
            logger.warning("%s", text)
        else:
            self._notify("warning", text)

    def _watch_loop(self) -> None:
        """On a thread of its own: finds who holds the loop while it is held."""
        while not self._stopped.wait(ALARM_S / 5):
            lag_s, culprit = monotonic() - self._due, self._culprit
            if culprit is None and lag_s > ALARM_S:
                self._culprit = self._find_culprit()
            elif culprit is not None and lag_s > STUCK_S and culprit.tool not in self._logged:
                self._logged.add(culprit.tool)
                logger.warning("tool %s blocks the event loop at %s; %s", *culprit, _FIX)

    def _find_culprit(self) -> _Culprit | None:
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._loop_thread)
        if task is None or frame is None or not task.get_name().startswith(TASK_PREFIX):
            return None
        return _Culprit(task.get_name().removeprefix(TASK_PREFIX), f"{frame.f_code.co_filename}:{frame.f_lineno}")


_FIX = "use `isolation: thread` or `process` with `def`, or await slow work"
