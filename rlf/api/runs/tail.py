"""A run's events as the lineage has them, while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rlf.lineage.reader import Reader
from rlf.types import EvaluationFinished, Notice, RunEvent, RunStatus, StepFinished

_POLL_S = 0.5
_Key = tuple[str, int, float]
"""The identity of an event, its time last: a clock that is set back puts later ones before earlier ones."""


@dataclass(frozen=True, slots=True)
class Tailed:
    """A run's state when its events were no longer followed."""

    run_id: str
    status: RunStatus
    step: int


def follow_events(reader: Reader, run_id: str, lines: int, *, follow: bool) -> Iterator[RunEvent]:
    """The last events of a run, and those to come until it ends."""
    shown: dict[_Key, None] | None = None
    while True:
        status = reader.get_run(run_id).status
        events = _read_events(reader, run_id)
        if shown is None:
            shown = dict.fromkeys(list(events)[: max(0, len(events) - lines)])
        yield from (event for key, event in events.items() if key not in shown)
        shown |= dict.fromkeys(events)
        if status is not RunStatus.RUNNING or not follow:
            return
        time.sleep(_POLL_S)


def _read_events(reader: Reader, run_id: str) -> dict[_Key, RunEvent]:
    """The events of a run that the lineage has, in the order of their times, without trajectories."""
    timed: dict[_Key, RunEvent] = {
        ("step", step.step, step.finished): StepFinished(step.step, step.metrics, (), ())
        for step in reader.steps(run_id)
    }
    timed |= {
        (e.mode, e.step, e.finished): EvaluationFinished(e.step, e.mode, e.metrics, ())
        for e in reader.evaluations(run_id)
    }
    timed |= {("notice", at, e.time): Notice(e.level, e.text, e.data) for at, e in enumerate(reader.events(run_id))}
    return dict(sorted(timed.items(), key=lambda item: item[0][2]))
