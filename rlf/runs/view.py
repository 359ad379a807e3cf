"""One run as a page shows it, and its curves."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rlf.core.errors import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.records import Evaluation, LoggedEvent, RunLine, TrainingStep
from rlf.reports.evaluations import EvaluationReport, is_evaluation, read_evaluations
from rlf.reports.report import Report, read_report
from rlf.reports.sweep import SweepReport, is_sweep, read_sweep
from rlf.types import EvaluationFinished, Notice, RunEvent, StepFinished
from rlf.types.events import RunStatus

__all__ = ["Cursor", "RunLine", "RunNews", "changed_lines", "parse_cursors", "read_news"]

# News of the lineage since the last look, for pages that show runs while they run.


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a reader has read one run."""

    run_id: str
    step_s: float = 0.0
    """When the last step that was read finished."""
    evaluation_s: float = 0.0
    num_notices: int = 0

    def behind(self, steps: Sequence[TrainingStep], evaluations: Sequence[Evaluation], num_notices: int) -> Cursor:
        """The cursor after more was read."""
        return replace(
            self,
            step_s=max([self.step_s, *(step.finished for step in steps)]),
            evaluation_s=max([self.evaluation_s, *(one.finished for one in evaluations)]),
            num_notices=self.num_notices + num_notices,
        )

    def __str__(self) -> str:
        return f"{self.run_id}@{self.step_s!r}@{self.evaluation_s!r}@{self.num_notices}"


@dataclass(frozen=True, slots=True)
class RunNews:
    """The news of one run."""

    run_id: str
    run: RunLine
    steps: tuple[TrainingStep, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    notices: tuple[LoggedEvent, ...] = ()
    cursor: Cursor | None = None
    """From which the next look begins; None where it was not asked for what is new in the run."""


def parse_cursors(text: str) -> dict[str, Cursor]:
    """Cursors by run, as `Cursor` writes them, with commas. Raises RlfError for anything else."""
    found = {}
    for part in filter(None, text.split(",")):
        run_id, *places = part.split("@")
        try:
            step_s, evaluation_s, num_notices = (float(place) for place in places)
            found[run_id] = Cursor(run_id, step_s, evaluation_s, max(0, int(num_notices)))
        except (ValueError, OverflowError) as error:
            raise RlfError(f"since: got {part[:80]!r}; expected RUN@TIME@TIME@NUMBER. Send what came last.") from error
    return found


def read_news(reader: Reader, cursor: Cursor) -> RunNews | None:
    """The news of a run after a cursor; None where the run is gone.

    A step that was made again by a resumed run is new: it finished later.
    """
    found = reader.run_lines(run_id=cursor.run_id)
    if not found:
        return None
    steps = reader.steps(cursor.run_id, cursor.step_s)
    evaluations = reader.evaluations(cursor.run_id, cursor.evaluation_s)
    notices = reader.events(cursor.run_id, cursor.num_notices)
    return RunNews(
        cursor.run_id,
        found[0],
        tuple(steps),
        tuple(evaluations),
        tuple(notices),
        cursor.behind(steps, evaluations, len(notices)),
    )


def changed_lines(before: Sequence[RunLine], now: Sequence[RunLine]) -> tuple[RunLine, ...]:
    """The runs that are new, or whose status or step is another."""
    known = {(run.id, run.status, run.last_step) for run in before}
    return tuple(run for run in now if (run.id, run.status, run.last_step) not in known)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with its details: one of `report`, `sweep` and `evaluated`, by the kind of run."""

    run: RunLine
    report: Report | None
    sweep: SweepReport | None
    evaluated: EvaluationReport | None
    evaluations: tuple[Evaluation, ...]
    children: tuple[RunLine, ...]
    """Forks, members, reproductions and evaluations of it, newest first."""
    tags: tuple[str, ...]
    cursor: str
    """From which `/api/v1/events` shows what comes after this."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Metrics of a run's steps; some are left out where there are too many."""

    run_id: str
    status: RunStatus
    num_planned: int | None
    """Steps that the plan has; None where it has none."""
    steps: tuple[int, ...]
    finished: tuple[float, ...]
    """Unix time of each step's end."""
    values: dict[str, tuple[float | None, ...]]
    """By metric, aligned with `steps`; None where a step has no such number."""
    evaluations: tuple[Evaluation, ...]


def read_run(reader: Reader, name: str) -> RunView:
    """Reads a run by its id, the beginning of one, or `latest`."""
    run = reader.get_run(name)
    run_id = run.record.id
    sweep, evaluated = is_sweep(run), is_evaluation(run)
    report = None if sweep or evaluated else read_report(reader, run_id)
    evaluations = reader.evaluations(run_id)
    cursor = Cursor(run_id).behind(
        () if report is None else report.steps, evaluations, 0 if report is None else len(report.events)
    )
    return RunView(
        run=reader.run_lines(run_id=run_id)[0],
        report=report,
        sweep=read_sweep(reader, run_id) if sweep else None,
        evaluated=read_evaluations(reader, [run_id]) if evaluated else None,
        evaluations=tuple(evaluations),
        cursor=str(cursor),
        children=tuple(reader.run_lines(parent_id=run_id)),
        tags=reader.tags().get(run_id, ()),
    )


def read_curves(reader: Reader, name: str, names: Sequence[str], max_points: int) -> Curves:
    """The curves of a run.

    Args:
        names: metrics; all of them where it is empty.
        max_points: steps at most; the last one is always there.
    """
    run = reader.get_run(name)
    every = reader.steps(run.record.id)
    stride = max(1, math.ceil(len(every) / max_points))
    steps = every[::-stride][::-1]
    known = names or sorted({metric for step in steps for metric in step.metrics})
    return Curves(
        run_id=run.record.id,
        status=run.status,
        num_planned=run.record.plan.get("spec", {}).get("train", {}).get("steps"),
        steps=tuple(step.step for step in steps),
        finished=tuple(step.finished for step in steps),
        values={metric: tuple(step.metrics.get(metric) for step in steps) for metric in known},
        evaluations=tuple(reader.evaluations(run.record.id)),
    )


# A run's events as the lineage has them, while it runs.

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
