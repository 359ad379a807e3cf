"""Runs as the page shows them: one with its curves, a list page by page, and the news since the last look."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlf.core.clocks import TimedStage
from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.lineage.reader import Reader
from rlf.lineage.records import Evaluation, LoggedEvent, RunLine, TrainingStep, TrajectoryLine
from rlf.reports.evaluations import EvaluationReport, is_evaluation, read_evaluations
from rlf.reports.overview import Overview, chosen, make_overview, read_overviews
from rlf.reports.report import Report, read_report
from rlf.reports.sweep import SweepReport, is_sweep, read_sweep
from rlf.runs.now import FILE, Now, PendingCalls
from rlf.types.events import RunStatus


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


PINNED = "pinned"
"""The tag of runs that stand above the others in the list."""
NAMED = "name="
"""A tag that begins so is what the page calls a run: the name of its spec is sealed in the lineage."""


def run_title(name: str, tags: Sequence[str]) -> str:
    """What a run is called on the page."""
    return next((tag.removeprefix(NAMED) for tag in tags if tag.startswith(NAMED)), name)


def plain_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags without those that the page shows in another way."""
    return tuple(tag for tag in tags if tag != PINNED and not tag.startswith(NAMED))


DEAD = "groups/dead_share"


def dead_words(metrics: Mapping[str, float]) -> str:
    """Whether a step's groups of equal rewards are expected, as after learning, or a fault; empty for few of them."""
    share, success = metrics.get(DEAD, 0.0), metrics.get("success")
    if share < 0.5 or success is None:
        return ""
    if success - (1 - share) > share / 2:  # at least so many groups are all right
        return "expected: most of these groups are all right, so little is left to learn from these questions"
    if success <= 0.1:
        return "bad: hardly any answer is right, so nothing is learnt. Take easier questions or a cold start"
    return "bad: the answers of a group are alike, so little is learnt. Raise the temperature or the generations"


def pick_spread(lines: Sequence[TrajectoryLine], limit: int) -> list[TrajectoryLine]:
    """One trajectory of each group of a step, failed ones first; groups whose rewards differ come before dead ones.

    Of groups with both outcomes, every second one shows its best.
    """
    groups = defaultdict[str, list[TrajectoryLine]](list)
    for line in lines:
        groups[line.summary.task_id].append(line)
    ranked = [sorted(group, key=_merit) for group in groups.values()]
    ranked.sort(key=lambda group: _merit(group[0]) == _merit(group[-1]))
    picked = [group[-1 if place % 2 else 0] for place, group in enumerate(ranked[:limit])]
    return sorted(picked, key=_merit)


def _merit(line: TrajectoryLine) -> tuple[float, float]:
    """What could not be scored is worst."""
    one = line.summary
    return -1.0 if one.success is None else one.success, -math.inf if one.reward is None else one.reward


def _rank(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then everything else by its text."""
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0.0, "" if is_number else str(value)


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """Some of the runs that a filter wants."""

    runs: tuple[Overview, ...]
    num_wanted: int
    """By the filter, on all pages."""
    num_runs: int
    """In the lineage."""
    next: str | None
    """The id behind which the next page begins; None on the last one."""


def page_overviews(
    reader: Reader,
    wanted: str | None,
    sort: str | None,
    after: str | None,
    limit: int,
    value_of: Callable[[Overview], Any] | None = None,
) -> OverviewPage:
    """The runs that `rlf runs list` shows for a filter and an order, from behind a run's id on.

    Args:
        value_of: what they are ordered by, where `sort` is no name of the list's own.
    """
    if wanted is None and sort is None:
        lines, num_runs = reader.run_lines(after=after, limit=limit + 1), reader.num_runs()
        shown = lines[:limit]
        latest, tags = reader.latest_evaluations([line.id for line in shown]), reader.tags()
        page = [make_overview(line, latest.get(line.id), tags.get(line.id, ())) for line in shown]
        return OverviewPage(tuple(page), num_runs, num_runs, shown[-1].id if len(lines) > limit else None)
    every = read_overviews(reader)
    found = chosen(every, wanted, sort if value_of is None else None)
    if value_of is not None and sort is not None:
        known = [(value, item) for item in found if (value := value_of(item)) is not None]
        known.sort(key=lambda pair: _rank(pair[0]), reverse=not sort.startswith("-"))
        with_it = {item.run_id for _, item in known}
        found = [*(item for _, item in known), *(item for item in found if item.run_id not in with_it)]
    ids = [item.run_id for item in found]
    begin = ids.index(after) + 1 if after in ids else 0
    page = found[begin : begin + limit]
    following = page[-1].run_id if begin + limit < len(found) else None
    return OverviewPage(tuple(page), len(found), len(every), following)


def now_words(runs_folder: Path, run_id: str) -> str:
    """The present work of a run as a sentence; empty if it does not report any."""
    now = read_now(runs_folder, run_id)
    return "" if now is None else now.words(time.time())


def read_now(runs_folder: Path, run_id: str) -> Now | None:
    """The present work of a run; None if it does not report any."""
    try:
        found = json.loads((run_folder(runs_folder, run_id) / FILE).read_text(encoding="utf-8"))
        return Now(
            tuple(TimedStage(**one) for one in found["stages"]), tuple(PendingCalls(**one) for one in found["waits"])
        )
    except (RlfError, OSError, ValueError, KeyError, TypeError):  # not there, or another rlf's
        return None
