"""State of a worker process that a call may change: restored after each call, or reported where it cannot be."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS: Final = {name: number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}


class Leftover(NamedTuple):
    """One thing that a call changed in its process."""

    name: str
    is_reset: bool
    """Whether it is as it was before the call."""


class ProcessState:
    """The state of this process at the time of making; for its main thread."""

    def __init__(self) -> None:
        self._folder = os.getcwd()  # noqa: PTH109 - compared as a text
        self._environment = dict(os.environ)
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._limits = {name: resource.getrlimit(number) for name, number in _LIMITS.items()}
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._threads = set(threading.enumerate())

    def restore(self) -> list[Leftover]:
        """Puts back what has changed, timers first, so that none goes off meanwhile. Returns what that was."""
        found = [
            ("a timer", _stop_timers()),
            ("signal handlers", self._restore_handlers()),
            ("the working folder", self._restore_folder()),
            ("environment variables", self._restore_environment()),
            ("the file mode mask", os.umask(self._umask) != self._umask or None),
            *((f"the limit {name}", self._restore_limit(name)) for name in self._limits),
        ]
        leftovers = [Leftover(name, is_reset) for name, is_reset in found if is_reset is not None]
        return [*leftovers, *self._threads_left()]

    def _restore_handlers(self) -> bool | None:
        changed = [number for number, handler in self._handlers.items() if signal.getsignal(number) != handler]
        for number in changed:
            signal.signal(number, self._handlers[number])
        return True if changed else None

    def _restore_folder(self) -> bool | None:
        with suppress(FileNotFoundError):
            if os.getcwd() == self._folder:  # noqa: PTH109 - compared as a text
                return None
        try:
            os.chdir(self._folder)
        except OSError:
            return False
        return True

    def _restore_environment(self) -> bool | None:
        if dict(os.environ) == self._environment:
            return None
        for name in set(os.environ) - set(self._environment):
            del os.environ[name]
        os.environ.update(self._environment)
        return True

    def _restore_limit(self, name: str) -> bool | None:
        number, limit = _LIMITS[name], self._limits[name]
        if resource.getrlimit(number) == limit:
            return None
        try:
            resource.setrlimit(number, limit)
        except (ValueError, OSError):  # a hard limit that was lowered stays so
            return False
        return True

    def _threads_left(self) -> Iterator[Leftover]:
        threads = set(threading.enumerate()) - self._threads
        self._threads |= threads
        if threads:
            yield Leftover("threads", is_reset=False)


def _stop_timers() -> bool | None:
    running = [timer for timer in _TIMERS if any(signal.setitimer(timer, 0))]
    return True if running else None
