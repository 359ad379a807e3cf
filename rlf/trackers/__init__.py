"""Trackers: where a run's events go beside the lineage as they happen. Nothing here is read back by rlf.

A kind is one file of `rlf.trackers.kinds`; its package is imported when a run begins. What happens when one fails is
not its concern: the run goes on, see `rlf.runs.sink`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rlf.core import Registry
from rlf.core.kinds import Kind
from rlf.types.events import EvaluationFinished, RunEvent, StepFinished

__all__ = ["TRACKERS", "TrackedRun", "Tracker", "TrackerWriter", "metrics_of"]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as trackers know it."""

    run_id: str
    name: str
    folder: Path
    """The run's own; it is there."""
    first_step: int
    """1, or the step that a resume starts with: what was reported of it and of later ones is reported again."""
    spec: Mapping[str, Any]
    """The spec as JSON values, without secrets."""
    redact: Callable[[str], str] = str
    """Removes secrets from a text; for what trajectories hold."""


class TrackerWriter(Protocol):
    """An open tracker. Called on one thread; what it raises ends it, not the run."""

    def __call__(self, event: RunEvent) -> None:
        """Takes one event; its trajectories only where the kind takes them."""

    def close(self) -> None:
        """Writes what is left. The last event was a RunFinished."""


class Tracker(Kind, ABC):
    """A place that a run reports to; `wandb` for `{kind: wandb}`."""

    chosen_by: ClassVar[str] = "kind"
    module: ClassVar[str | None] = None
    """The module that must be importable; None needs nothing."""
    install: ClassVar[str] = ""
    """What pip installs for it."""
    takes_trajectories: ClassVar[bool] = False
    """Whether its events have their trajectories; it may be far fewer events behind."""

    kind: str
    """The tracker's name."""

    @abstractmethod
    def open(self, run: TrackedRun) -> TrackerWriter:
        """Begins to report a run, or continues it after a resume."""

    def complaint(self) -> str | None:
        """Why it cannot be used on this machine, with what to do; None where it can. Imports nothing."""
        with suppress(ModuleNotFoundError):  # of a parent of a dotted name
            if self.module is None or find_spec(self.module) is not None:
                return None
        return f"{self.module} is not installed. Run `pip install {self.install}`, or leave {self.kind} out."


TRACKERS: Registry[Tracker] = Registry(
    "tracker",
    "rlf.trackers.kinds",
    Tracker,  # type: ignore[type-abstract]  # compared with, never called
)


def metrics_of(event: RunEvent) -> dict[str, float]:
    """An event's numbers in a flat mapping: those of a step under rlf's names, those of an evaluation with its mode."""
    match event:
        case StepFinished():
            return dict(event.metrics)
        case EvaluationFinished():
            return {f"eval/{event.mode}/{name}": value for name, value in event.metrics.items()}
        case _:
            return {}
