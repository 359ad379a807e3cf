"""A run's events and trajectories while it runs, and calls of its tools that match."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rlf.apps.look.trace import find
from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError
from rlf.core.registry import nearest
from rlf.lineage.calls import names_inside, read_calls, tool_call_summary
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, FoundCall, Run, StoredTrajectory, TrajectoryFilter
from rlf.spec.model_files import model_location
from rlf.types import EvaluationFinished, Notice, Outcome, RunEvent, RunStatus, StepFinished

_POLL_S = 0.5
_Key = tuple[str, int, float]
"""The identity of an event, its time last: a clock that is set back puts later ones before earlier ones."""


@dataclass(frozen=True, slots=True)
class TailEnd:
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


def follow_trajectories(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, text: str | None
) -> Iterator[StoredTrajectory]:
    """One trajectory that matches of each step that finishes from now on, until the run ends."""
    last_step = reader.get_run(run_id).last_step
    while True:
        run = reader.get_run(run_id)
        for step in range(last_step + 1, run.last_step + 1):
            here = replace(wanted, phase=TRAIN, step=step, limit=None)
            found = [reader.whole(run_id, match.summary) for match in find(reader, run_id, here, text, 1)]
            yield from (stored for stored in found if stored is not None)
        last_step = run.last_step
        if run.status is not RunStatus.RUNNING:
            return
        time.sleep(_POLL_S)


def find_calls(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, tool: str | None, outcome: str | None, limit: int
) -> list[FoundCall]:
    """Calls of a tool, or with an outcome. Raises RlfError for a tool that was never called, or an unknown outcome."""
    outcomes = _parse_outcomes(outcome)
    called = [summary.name for summary in tool_call_summary(reader, run_id)]
    called += sorted(names_inside(reader, run_id) - set(called)) if tool is not None and tool not in called else []
    if tool is not None and tool not in called:
        raise RlfError(
            f"--tool: {run_id} has no call of {tool!r}{nearest(tool, called)} (called: {', '.join(called) or 'none'})."
        )
    return read_calls(reader, run_id, wanted, tool=tool, outcomes=outcomes, limit=limit)


def _parse_outcomes(name: str | None) -> list[Outcome]:
    if name is None:
        return list(Outcome)
    known = ["failed", *map(str, Outcome)]
    if name not in known:
        raise RlfError(f"--outcome: unknown outcome {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    return [found for found in Outcome if found is not Outcome.OK] if name == "failed" else [Outcome(name)]


def token_decoder(run: Run) -> Callable[[int], str]:
    """One token as text, by the tokenizer of the run's model."""
    tokenizer = load_tokenizer(model_location(run.record.plan["spec"]["model"]["path"]))
    return lambda token: str(tokenizer.decode([token]))
