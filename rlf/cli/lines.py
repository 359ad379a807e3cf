"""The machine's view: one JSON object per event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlf.cli.envelope import print_event
from rlf.types.events import EvaluationFinished, Interrupted, RunEvent, StepFinished
from rlf.types.score import costs_by_name

if TYPE_CHECKING:
    from rlf.api.running.start import RunInfo

_NAMES = {
    "StepFinished": "step",
    "EvaluationFinished": "evaluation",
    "Interrupted": "interrupted",
    "CheckpointSaved": "checkpoint",
    "Notice": "notice",
    "RunFinished": "finished",
}


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
    """What a stop cut off, without its trajectories."""

    step: int
    num_trajectories: int
    cost_usd: float
    """Of its tools and judges."""


class JsonLines:
    """Prints every event as a line of JSON. Trajectories are counted, not printed: the lineage holds them."""

    def __init__(self, command: str) -> None:
        self._command = command

    def open(self, info: RunInfo) -> JsonLines:
        """Prints what is about to run."""
        print_event(self._command, "started", info)
        return self

    def __call__(self, event: RunEvent) -> None:
        """Prints one event."""
        print_run_event(self._command, event)

    def close(self) -> None:
        """Has nothing to give back."""


def print_run_event(command: str, event: RunEvent) -> None:
    """Prints an event of a run as a line."""
    print_event(command, _NAMES[type(event).__name__], _line(event))


def _line(event: RunEvent) -> object:
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
