"""What a run's events have said so far: a fold, so that a view may draw one state while the next one is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rlf.types.events import (
    CheckpointSaved,
    EvaluationFinished,
    Interrupted,
    Notice,
    RunEvent,
    RunFinished,
    StepFinished,
)

CURVES = ("success", "reward/mean")
"""Metrics whose whole curve is kept."""

_PACE_STEPS = 20
_NUM_NOTICES = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run as its events tell it."""

    total_steps: int
    first_step: int = 1
    """Step that this process starts with; above 1 after a resume."""
    step: int = 0
    """Last step finished, here or before a resume."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the last step finished."""
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    arrivals_s: tuple[float, ...] = ()
    """When the latest steps finished, on the caller's clock."""
    evaluations: tuple[EvaluationFinished, ...] = ()
    """All of them, without their trajectories."""
    checkpoint_step: int | None = None
    notices: tuple[Notice, ...] = ()
    """The latest few."""
    finished: RunFinished | None = None

    def after(self, event: RunEvent, now_s: float) -> Progress:
        """The state once `event` happened at `now_s`."""
        match event:
            case StepFinished():
                return self._after_step(event, now_s)
            case EvaluationFinished():
                return replace(self, evaluations=(*self.evaluations, replace(event, trajectories=())))
            case CheckpointSaved():
                return replace(self, checkpoint_step=event.step)
            case Notice():
                return replace(self, notices=(*self.notices, event)[-_NUM_NOTICES:])
            case Interrupted():
                return self
            case RunFinished():
                return replace(self, finished=event)

    def time_left_s(self, now_s: float) -> float | None:
        """Seconds until the last step at the pace of the latest steps; None before the first step."""
        pace = self._pace_s()
        if pace is None:
            return None
        return max(0.0, pace * (self.total_steps - self.step) - (now_s - self.arrivals_s[-1]))

    def _pace_s(self) -> float | None:
        """Mean time of a step, evaluations included; the slowest one counts as the second slowest, being a chance."""
        took_s = sorted(after - before for before, after in pairwise(self.arrivals_s))
        if not took_s:
            return self.metrics.get("time/step_s") if self.arrivals_s else None
        return (sum(took_s[:-1]) + took_s[-2:][0]) / len(took_s)

    def _after_step(self, event: StepFinished, now_s: float) -> Progress:
        values = {name: event.metrics[name] for name in CURVES if name in event.metrics}
        curves = {**self.curves, **{name: (*self.curves.get(name, ()), value) for name, value in values.items()}}
        return replace(
            self,
            step=event.step,
            metrics=event.metrics,
            curves=curves,
            arrivals_s=(*self.arrivals_s, now_s)[-_PACE_STEPS:],
        )
