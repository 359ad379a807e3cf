"""A run's events as the lineage has them, while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rlf.lineage.reader import Reader
from rlf.types import EvaluationFinished, Notice, RunEvent, RunStatus, StepFinished

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Tailed:
    """How a run stood when its events were no longer followed."""

    run_id: str
    status: RunStatus
    step: int


def follow_events(reader: Reader, run_id: str, lines: int, *, follow: bool) -> Iterator[RunEvent]:
    """The last events of a run, and those to come until it ends."""
    shown = 0
    while True:
        status = reader.get_run(run_id).status
        events = _events(reader, run_id)
        yield from events[shown or max(0, len(events) - lines) :]
        shown = len(events)
        if status is not RunStatus.RUNNING or not follow:
            return
        time.sleep(_POLL_S)


def _events(reader: Reader, run_id: str) -> list[RunEvent]:
    """The events of a run that the lineage has, in the order it happened, without trajectories."""
    timed: list[tuple[float, RunEvent]] = [
        (step.finished, StepFinished(step.step, step.metrics, (), ())) for step in reader.steps(run_id)
    ]
    timed += [(e.finished, EvaluationFinished(e.step, e.mode, e.metrics, ())) for e in reader.evaluations(run_id)]
    timed += [(e.time, Notice(e.level, e.text, e.data)) for e in reader.events(run_id)]
    return [event for _, event in sorted(timed, key=lambda item: item[0])]
