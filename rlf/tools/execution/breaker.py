"""A circuit breaker: a dependency that is dead is not asked by every call, but now and then by one."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

from rlf.tools.limits import BreakerSpec
from rlf.types import Outcome

FAILURES: Final = frozenset(
    {Outcome.UNREACHABLE, Outcome.RATE_LIMITED, Outcome.SERVICE_ERROR, Outcome.UNKNOWN, Outcome.INFRA}
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
        self._probe_at: float | None = None
        """When the next probe may pass; None while closed."""
        self._probing = False

    def refuses(self) -> str | None:
        """Why a call may not pass; None lets it pass, and then `note` or `forget` must follow."""
        if self._probe_at is None:
            return None
        wait_s = self._probe_at - self._now()
        if wait_s > 0 or self._probing:
            return f"{self._num_failures} calls in a row failed; it is tried again every {self._spec.pause_s:g} s"
        self._probing = True
        return None

    def note(self, outcome: Outcome, started: float) -> bool:
        """Counts how a call that started then has ended; true when this one opened the breaker.

        Calls that started together fail together: their number says nothing where others were answered meanwhile.
        """
        if outcome not in self._failures:
            self._answered_at = self._now()
            self._num_failures, self._probe_at, self._probing = 0, None, False
            return False
        if self._answered_at > started:
            return False
        self._num_failures += 1
        was_closed = self._probe_at is None
        if self._probing or self._num_failures >= self._spec.failures:
            self._probe_at, self._probing = self._now() + self._spec.pause_s, False
        return was_closed and self._probe_at is not None

    def forget(self) -> None:
        """A call that passed was cancelled: it says nothing, and the next probe may pass."""
        self._probing = False
