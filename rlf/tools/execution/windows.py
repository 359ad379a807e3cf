"""The starts of calls, and the tokens that they use, within spans of time."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from rlf.tools.kind import RateSpec


class StartWindow:
    """At most `limit` starts within any `span_s`, exactly."""

    def __init__(self, limit: int, span_s: float) -> None:
        self._span_s = span_s
        self._limit = limit
        self._starts: deque[float] = deque(maxlen=limit)

    def wait_s(self, now: float) -> float:
        """Time until one more call may start; 0 when it may now."""
        # A deque of `limit` starts: the oldest is the one that must leave the window for another to begin. Buckets of
        # a second would let twice the limit through across their border, which services count as a breach.
        if len(self._starts) < self._limit:
            return 0.0
        return max(0.0, self._starts[0] + self._span_s - now)

    def note_start(self, now: float) -> None:
        self._starts.append(now)

    def note_tokens(self, now: float, num_tokens: float) -> None:
        """Counts none."""


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
        # A call's tokens are known at its end alone, so the limit is met by those that have ended.
        excess = self._total - self._limit
        for when, num_tokens in self._used if excess >= 0 else ():
            excess -= num_tokens
            if excess < 0:
                return when + self._span_s - now
        return 0.0

    def note_start(self, now: float) -> None:
        """Counts none."""

    def note_tokens(self, now: float, num_tokens: float) -> None:
        self._used.append((now, num_tokens))
        self._total += num_tokens


Window: TypeAlias = StartWindow | TokenWindow


def make_windows(rate: RateSpec) -> list[Window]:
    """Those that a tool's rate asks for."""
    bounds = [(StartWindow, rate.per_second, 1.0), (StartWindow, rate.per_minute, 60.0)]
    windows: list[Window] = [kind(limit, span_s) for kind, limit, span_s in bounds if limit is not None]
    if rate.tokens_per_minute is not None:
        windows.append(TokenWindow(rate.tokens_per_minute, 60.0))
    return windows
