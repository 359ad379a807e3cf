"""A run's events without their trajectories, which the lineage holds: what `--json` prints line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlf.types.events import EvaluationFinished, Interrupted, RunEvent, StepFinished
from rlf.types.score import costs_by_name

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
