"""The machine's view: one JSON object per event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.cli.envelope import print_event
from rlf.types.events import EvaluationFinished, Interrupted, RunEvent, StepFinished

if TYPE_CHECKING:
    from rlf.api.runs import RunInfo

_NAMES = {
    "StepFinished": "step",
    "EvaluationFinished": "evaluation",
    "Interrupted": "interrupted",
    "CheckpointSaved": "checkpoint",
    "Notice": "notice",
    "RunFinished": "finished",
}


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
        print_event(self._command, _NAMES[type(event).__name__], _data(event))

    def close(self) -> None:
        """Has nothing to give back."""


def _data(event: RunEvent) -> object:
    match event:
        case StepFinished():
            return {"step": event.step, "metrics": event.metrics, "num_trajectories": len(event.trajectories)}
        case EvaluationFinished():
            counted = {"num_trajectories": len(event.trajectories)}
            return {"step": event.step, "mode": event.mode, "metrics": event.metrics, **counted}
        case Interrupted():
            return {"step": event.step, "num_trajectories": len(event.trajectories)}
        case _:
            return event
