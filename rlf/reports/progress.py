"""The state of a run from its events so far: a fold, so that a view can draw one state while the next is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median_low

from rlf.types.events import (
    CheckpointSaved,
    EvaluationFinished,
    Interrupted,
    Notice,
    RunEvent,
    RunFinished,
    StepFinished,
)
from rlf.types.score import costs_by_name

CURVES = ("success", "reward/mean")
"""Metrics whose whole curve is kept."""

_PACE_STEPS = 20
_NUM_NOTICES = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run by its events."""

    total_steps: int
    first_step: int = 1
    """Step that this process starts with; above 1 after a resume."""
    step: int = 0
    """Last step finished, here or before a resume."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the last step finished."""
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    arrived_s: float | None = None
    """When the latest step finished, on the caller's clock."""
    active_s: float | None = None
    """When the latest step or evaluation since then finished."""
    evaluating_s: float = 0.0
    """Time of evaluations since the latest step."""
    took_s: tuple[tuple[float, float], ...] = ()
    """Of the latest steps but the first one: the time of each, and of the evaluations before it."""
    evaluations: tuple[EvaluationFinished, ...] = ()
    """All of them, without their trajectories."""
    checkpoint_step: int | None = None
    notices: tuple[Notice, ...] = ()
    """The latest few."""
    costs_usd: Mapping[str, float] = field(default_factory=dict)
    """What was spent, here or before a resume, by tool and judged term."""
    finished: RunFinished | None = None

    def after(self, event: RunEvent, now_s: float) -> Progress:
        """The state once `event` happened at `now_s`."""
        if isinstance(event, StepFinished | EvaluationFinished | Interrupted):
            return self._after_spending(event)._advance_by(event, now_s)
        return self._advance_by(event, now_s)

    def _after_spending(self, event: StepFinished | EvaluationFinished | Interrupted) -> Progress:
        spent = costs_by_name(event.trajectories)
        if not spent:
            return self
        names = (*self.costs_usd, *spent)
        return replace(self, costs_usd={name: self.costs_usd.get(name, 0.0) + spent.get(name, 0.0) for name in names})

    def _advance_by(self, event: RunEvent, now_s: float) -> Progress:
        match event:
            case StepFinished():
                return self._after_step(event, now_s)
            case EvaluationFinished():
                took_s = 0.0 if self.active_s is None else now_s - self.active_s
                evaluations = (*self.evaluations, replace(event, trajectories=()))
                return replace(self, evaluations=evaluations, evaluating_s=self.evaluating_s + took_s, active_s=now_s)
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
        if pace is None or self.arrived_s is None:
            return None
        return max(0.0, pace * (self.total_steps - self.step) - (now_s - self.arrived_s))

    def _pace_s(self) -> float | None:
        """The median of the steps, which one slow step does not move, with their share of the evaluations' time."""
        if not self.took_s:
            return self.metrics.get("time/step_s")
        median_s = median_low(step_s for step_s, _ in self.took_s)
        return median_s + sum(evaluating_s for _, evaluating_s in self.took_s) / len(self.took_s)

    def _after_step(self, event: StepFinished, now_s: float) -> Progress:
        values = {name: event.metrics[name] for name in CURVES if name in event.metrics}
        curves = {**self.curves, **{name: (*self.curves.get(name, ()), value) for name, value in values.items()}}
        took_s = self.took_s
        if self.arrived_s is not None:
            step_s = now_s - self.arrived_s - self.evaluating_s
            took_s = (*took_s, (step_s, self.evaluating_s))[-_PACE_STEPS:]
        return replace(
            self,
            step=event.step,
            metrics=event.metrics,
            curves=curves,
            arrived_s=now_s,
            active_s=now_s,
            evaluating_s=0.0,
            took_s=took_s,
        )


# A run's events without their trajectories, which the lineage holds: what `--json` prints line by line.

NAMES = {
    "StepFinished": "step",
    "EvaluationFinished": "evaluation",
    "Interrupted": "interrupted",
    "CheckpointSaved": "checkpoint",
    "Notice": "notice",
    "RunFinished": "finished",
}
"""Names of events by their class."""


@dataclass(frozen=True, slots=True)
class StepLine:
    """A training step without its trajectories, which the lineage holds."""

    step: int
    metrics: Mapping[str, float]
    num_trajectories: int
    cost_usd: float
    """Of its tools and judges."""


@dataclass(frozen=True, slots=True)
class EvaluationLine:
    """An evaluation without its trajectories."""

    step: int
    mode: str
    metrics: Mapping[str, float]
    num_trajectories: int
    cost_usd: float
    """Of its tools and judges."""


@dataclass(frozen=True, slots=True)
class InterruptedLine:
    """A step that a stop cut off, without its trajectories."""

    step: int
    num_trajectories: int
    cost_usd: float
    """Of its tools and judges."""


def line_of(event: RunEvent) -> object:
    """An event as it is printed."""
    match event:
        case StepFinished():
            return StepLine(event.step, event.metrics, len(event.trajectories), _cost_usd(event))
        case EvaluationFinished():
            num, cost_usd = len(event.trajectories), _cost_usd(event)
            return EvaluationLine(event.step, event.mode, event.metrics, num, cost_usd)
        case Interrupted():
            return InterruptedLine(event.step, len(event.trajectories), _cost_usd(event))
        case _:
            return event


def _cost_usd(event: StepFinished | EvaluationFinished | Interrupted) -> float:
    return sum(costs_by_name(event.trajectories).values())
