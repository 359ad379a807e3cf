"""Time that this whole process was stopped or its machine asleep: no deadline counts it.

A thread beats; where a beat comes late by more than a second and the process has used no processor meanwhile, it was
stopped (SIGSTOP, Ctrl-Z, a frozen container) or starved. A suspended machine shows in the clock that counts its sleep.
A tool that holds the event loop or the interpreter is no pause: the thread beats meanwhile, or the processor is used.
"""

from __future__ import annotations

import os
import threading
import time

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
