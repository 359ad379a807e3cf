"""Spending, counted as it is made: also where the call that spends it fails, is cut off or is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

COST = "cost_usd"
ROUNDING = 1e-9
"""Of sums of many small numbers: ten times 0.1 is less than 1.0."""


class Meter:
    """Sums of what was used up, by unit. What one meter counts, those around it count too."""

    __slots__ = ("_bounds", "_outer", "usage")

    def __init__(self, outer: Meter | None = None) -> None:
        self.usage: dict[str, float] = {}
        self._outer = outer
        self._bounds: tuple[_Bound, ...] = ()

    def add(self, usage: Mapping[str, float]) -> None:
        """Counts what was used up just now."""
        for unit, number in usage.items():
            self.usage[unit] = self.usage.get(unit, 0.0) + number
        for bound in self._bounds if COST in usage else ():
            bound.look(self.cost_usd)
        if self._outer is not None:
            self._outer.add(usage)

    @property
    def cost_usd(self) -> float:
        """US dollars so far."""
        return self.usage.get(COST, 0.0)

    @contextmanager
    def bounded(self, max_usd: float | None, stop: Callable[[], None]) -> Iterator[None]:
        """Calls `stop`, once, when what is spent in this block reaches a sum; never where the sum is None."""
        if max_usd is None:
            yield
            return
        bound = _Bound(self.cost_usd + max_usd, stop)
        self._bounds += (bound,)
        try:
            yield
        finally:
            self._bounds = tuple(one for one in self._bounds if one is not bound)


class _Bound:
    __slots__ = ("_at_usd", "_is_reached", "_stop")

    def __init__(self, at_usd: float, stop: Callable[[], None]) -> None:
        self._at_usd, self._stop, self._is_reached = at_usd, stop, False

    def look(self, cost_usd: float) -> None:
        if not self._is_reached and cost_usd >= self._at_usd - ROUNDING:
            self._is_reached = True
            self._stop()
