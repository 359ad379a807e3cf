"""The budget of a run: counted as it is spent, and the run stopped when it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlf.core.errors import RunError
from rlf.core.meter import COST, ROUNDING, Meter
from rlf.plan import Plan
from rlf.spec.models import Feature
from rlf.types.events import EvaluationFinished, Interrupted, RunEvent, StepFinished
from rlf.types.score import usage_by_name

_UNITS = (COST, "requests")


class BudgetSpent(RunError):
    """`limits.max_usd` is spent: the run stops as by Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One run's."""

    max_usd: float | None
    """None: no limit."""
    spent_usd: float = 0.0
    """Before this process."""
    counts_events: bool = False
    """Whether tools and judges are called by other processes, so that only what they report can be counted."""
    is_played: bool = False
    """Whether the results of tools come from a recording, so that they cost nothing."""
    meter: Meter = field(default_factory=Meter)
    recorded: Meter = field(default_factory=Meter)
    """What trajectories of events have cost."""

    def note(self, event: RunEvent) -> None:
        """Counts what an event's trajectories cost."""
        if isinstance(event, StepFinished | EvaluationFinished | Interrupted):
            usages = usage_by_name(event.trajectories, is_played=self.is_played).values()
            spent = {unit: number for unit in _UNITS if (number := sum(usage[unit] for usage in usages))}
            self.recorded.add(spent)
            if self.counts_events:
                self.meter.add(spent)

    def unrecorded(self) -> dict[str, float]:
        """Spending so far that no event's trajectories have."""
        found = {unit: self.meter.usage.get(unit, 0.0) - self.recorded.usage.get(unit, 0.0) for unit in _UNITS}
        return {unit: number for unit, number in found.items() if number > ROUNDING}

    @contextmanager
    def watched(self, stop: Callable[[], None]) -> Iterator[None]:
        """Calls `stop` when the budget is spent. Raises BudgetSpent where it is from the beginning."""
        left_usd = None if self.max_usd is None else self.max_usd - self.spent_usd
        if left_usd is not None and left_usd <= ROUNDING:
            raise self.spent()
        with self.meter.bounded(left_usd, stop):
            yield

    def spent(self) -> BudgetSpent:
        """Why the run stops."""
        spent_usd = self.spent_usd + self.meter.cost_usd
        words = f"limits.max_usd: ${spent_usd:.4g} of ${self.max_usd:g} are spent"
        return BudgetSpent(f"{words}. Raise it with `rlf resume RUN --max-usd N`.")


def open_budget(plan: Plan, spent_usd: float = 0.0, max_usd: float | None = None, *, is_played: bool = False) -> Budget:
    """The budget of a run by its plan, or by the limit of the command line instead."""
    limit = plan.spec.limits.max_usd if max_usd is None else max_usd
    return Budget(limit, spent_usd, counts_events=Feature.RECORDED_CALLS in plan.spec.engine.LACKS, is_played=is_played)
