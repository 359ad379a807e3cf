"""The end of a run for people: its effect on the held-out questions, one of them before and after, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from rlf.lineage.records import Evaluation, Run, StoredTrajectory, TrajectoryFilter, TrajectorySummary
from rlf.reports.paired import Evidence, PairedFinding, judge, paired_evidence
from rlf.reports.sheets import MISSING, Sheet, counted, level, p_value, points, points_range, rate, sheet_table, visible
from rlf.reports.statistics import Estimate, Interval, find_spread, wilson_interval
from rlf.reports.success import first_samples, interval_of, kinds_of, success_by_task
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.reports.trajectory import ReadOpening


@dataclass(frozen=True, slots=True)
class EvaluationTries:
    """One evaluation with every try at a question."""

    evaluation: Evaluation
    tries: tuple[TrajectorySummary, ...]
    clusters: Mapping[str, str] = field(default_factory=dict, metadata={"json": None})
    """What a question belongs to, of those that belong to anything."""


@dataclass(frozen=True, slots=True)
class EvaluationChange:
    """One mode's first and last evaluation."""

    mode: str
    """`sampled` or `greedy`."""
    before: EvaluationTries
    after: EvaluationTries | None
    """None when there is one evaluation only."""
    num_looks: int | None = field(default=0, metadata={"json": None})
    """Evaluations after the first of a run that ended before it finished: each may have been why. 0 of a finished run;
    None of a running one, of which nothing is claimed."""


@dataclass(frozen=True, slots=True)
class ScoreShift:
    """The change of a mode over the questions scored both times."""

    difference: float
    finding: PairedFinding | None
    """None while the run is running."""
    flips: tuple[int, int] | None
    """Questions gained and lost, by the first sample of each; None unless every success is 0 or 1."""
    num_questions: int
    num_clusters: int | None
    """None where the data names none."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One question's first sample, before and after."""

    before: TrajectorySummary
    after: TrajectorySummary


@dataclass(frozen=True, slots=True)
class GainedQuestion:
    """One question as it was tried before and after."""

    before: StoredTrajectory
    after: StoredTrajectory


def read_changes(reader: Reader, run_id: str, ended: RunStatus | None = None) -> tuple[EvaluationChange, ...]:
    """The change in every mode that a run was evaluated in, sampled first.

    Args:
        ended: how the run has ended, where that is not recorded yet.
    """
    run = reader.get_run(run_id)
    status = ended or run.status
    by_mode: dict[str, list[Evaluation]] = {}
    for evaluation in reader.evaluations(run_id):
        by_mode.setdefault(evaluation.mode, []).append(evaluation)
    return tuple(
        _read_change(reader, run, status, by_mode[mode]) for mode in sorted(by_mode, key=lambda mode: mode != "sampled")
    )


def _read_change(reader: Reader, run: Run, status: RunStatus, found: Sequence[Evaluation]) -> EvaluationChange:
    clusters = reader.clusters(run, found[0].mode)

    def trial(evaluation: Evaluation) -> EvaluationTries:
        wanted = TrajectoryFilter(phase=evaluation.mode, step=evaluation.step)
        return EvaluationTries(evaluation, tuple(reader.trajectories(run.record.id, wanted)), clusters)

    looks = {RunStatus.RUNNING: None, RunStatus.FINISHED: 0}.get(status, len(found) - 1)
    return EvaluationChange(found[0].mode, trial(found[0]), trial(found[-1]) if len(found) > 1 else None, looks)


def flips(change: EvaluationChange) -> tuple[int, int] | None:
    """Questions gained and lost of those scored both times; None unless every success is 0 or 1.

    A question's first sample stands for it: further samples of a question are not independent of the first.
    """
    outcomes = [(pair.before.success, pair.after.success) for pair in pairs(change)]
    if not outcomes or not all(_is_binary(value) for outcome in outcomes for value in outcome):
        return None
    return outcomes.count((0.0, 1.0)), outcomes.count((1.0, 0.0))


def shifts(changes: Sequence[EvaluationChange]) -> list[ScoreShift | None]:
    """Judges each mode's change, the modes taken together as one report; None for fewer than two questions.

    A question's samples are averaged where it has several.
    """
    found = [_find_evidence(change) for change in changes]
    findings = judge(
        [
            None if one is None or change.num_looks is None else one.after_looks(change.num_looks)
            for one, change in zip(found, changes, strict=True)
        ]
    )
    return [
        None if one is None else _make_shift(change, one.difference, finding)
        for change, one, finding in zip(changes, found, findings, strict=True)
    ]


def _find_evidence(change: EvaluationChange) -> Evidence | None:
    before, after = (() if trial is None else trial.tries for trial in (change.before, change.after))
    sides = success_by_task(before), success_by_task(after)
    values = [value for side in sides for value in side.values()]
    if not all(0 <= value <= 1 for value in values):
        return None
    return paired_evidence(*sides, binary=all(map(_is_binary, values)), cluster_by_task=change.before.clusters)


def _make_shift(change: EvaluationChange, difference: float, finding: PairedFinding | None) -> ScoreShift:
    shared = {pair.before.task_id for pair in pairs(change)}
    clusters = change.before.clusters
    num_clusters = len({clusters.get(task, (task,)) for task in shared}) if clusters else None
    return ScoreShift(difference, finding, flips(change), len(shared), num_clusters)


def gained_pair(changes: Sequence[EvaluationChange]) -> Pair | None:
    """A question that failed before and succeeds after: the one with most turns, of the first mode that has any."""
    for change in changes:
        gained = [pair for pair in pairs(change) if pair.before.success == 0.0 and pair.after.success == 1.0]
        if gained:
            return max(gained, key=lambda pair: pair.after.num_turns)
    return None


def pairs(change: EvaluationChange) -> list[Pair]:
    """The first samples of every question that was scored both times."""
    if change.after is None:
        return []
    before, after = first_samples(change.before.tries), first_samples(change.after.tries)
    return [Pair(before[task], after[task]) for task in before if task in after]


def kind_interval(trial: EvaluationTries, kind: str) -> Interval | None:
    """95 % interval of a kind's success; None unless each question was tried once and succeeds or fails."""
    tries = [item for item in trial.tries if item.kind == kind]
    values = {item.task_id: item.success for item in tries if item.success is not None}
    once = len({item.task_id for item in tries}) == len(tries)
    if not values or not once or not all(map(_is_binary, values.values())):
        return None
    return wilson_interval(
        sum(values.values()), len(values), spread=find_spread(values, trial.clusters, are_shares=True)
    )


def _is_binary(value: float | None) -> bool:
    return value in (0.0, 1.0)


_EXAMPLE_LINES = 12


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of a run's evaluations."""

    run_id: str
    changes: tuple[EvaluationChange, ...]
    example: GainedQuestion | None
    """A held-out question that failed before and succeeds after; None when there is none."""


def read_summary(reader: Reader, run_id: str) -> Summary:
    """Reads a run's summary from the lineage."""
    return summarize(reader, run_id, read_changes(reader, run_id))


def summarize(reader: Reader, run_id: str, changes: tuple[EvaluationChange, ...]) -> Summary:
    """The summary of a run whose changes are read already."""
    pair = gained_pair(changes)
    if pair is None:
        return Summary(run_id, changes, None)
    whole = (reader.trajectory(run_id, k=one.k, step=one.step, phase=one.phase) for one in (pair.before, pair.after))
    return Summary(run_id, changes, GainedQuestion(*whole))


def summary_view(
    summary: Summary, options: str = "", opening: ReadOpening | None = None, below: str = ""
) -> RenderableType:
    """Renders a summary. Print it with `crop=False`: the commands in it are lines that must not be broken.

    Args:
        options: What the commands in it need beside the run, e.g. ` --runs elsewhere`.
        opening: Reads what the policy saw before the question; None shows nothing of it.
        below: A line that stands under it; its sentence is not repeated.
    """
    return Group(change_view(summary, below), *example_parts(summary, options, opening))


def change_view(summary: Summary, verdict: str = "") -> RenderableType:
    """The effect of the run: a sentence for each mode, then the rates.

    Args:
        verdict: A line that stands above or below; its sentence is not repeated.
    """
    if not summary.changes:
        return Text("no evaluation yet", style="dim")
    found = shifts(summary.changes)
    parts: list[RenderableType] = [
        Text(words, "bold") for words in shift_lines(summary.changes, found) if words not in verdict
    ]
    return Group(*parts, sheet_table(change_sheet(summary.changes)))


def example_parts(summary: Summary, options: str, opening: ReadOpening | None) -> Iterator[RenderableType]:
    """One question before and after, turn by turn; nothing where none was gained."""
    if summary.example is None:
        return
    from rlf.reports.trajectory import legend, trajectory_view

    ends = (("one held-out question, before", summary.example.before), ("the same, after", summary.example.after))
    for title, stored in ends:
        place = f"--phase {stored.summary.phase} --step {stored.summary.step} --trajectory {stored.summary.k}"
        yield Text()
        yield Rule(Text(title, "bold"), align="left", style="dim")
        before = "" if opening is None else opening(stored.scored.trajectory)
        yield trajectory_view(stored.scored, _EXAMPLE_LINES, opening=before)
        yield Text(f"rlf runs show {summary.run_id}{options} {place}", style="dim", no_wrap=True, overflow="ignore")
    yield legend()


def change_sheet(changes: Sequence[EvaluationChange]) -> Sheet:
    """The rates before and after, with their intervals. Colour would be a claim too: there is none."""
    rows = tuple(
        (
            visible(name.replace("  ", "\u2003")),
            rate(before.value, before.interval),
            rate(after.value, after.interval),
            difference_words(before.value, after.value),
        )
        for change in changes
        for name, before, after in rate_rows(change)
    )
    trials = zip(("before", "after"), (changes[0].before, changes[0].after), strict=True)
    names = [word if trial is None else f"{word} (step {trial.evaluation.step})" for word, trial in trials]
    return Sheet(
        "held-out success", "in brackets: 95 % confidence intervals", ("", *names, "change"), rows, figures=True
    )


def rate_rows(change: EvaluationChange) -> Iterator[tuple[str, Estimate, Estimate]]:
    """The mode's rows: all questions, each kind, pass@k."""
    before, after = change.before, change.after
    metrics = before.evaluation.metrics
    size = f", n = {metrics['num_questions']:.0f}" if "num_questions" in metrics else ""
    yield change.mode + size, _overall_success(before), _overall_success(after)
    for kind in sorted(kinds_of(metrics)):
        yield f"  {kind}", _of_kind(before, kind), _of_kind(after, kind)
    for name in sorted(name for name in metrics if name.startswith("pass@")):
        yield f"  {name}", Estimate(_metrics_of(before).get(name)), Estimate(_metrics_of(after).get(name))


def _overall_success(trial: EvaluationTries | None) -> Estimate:
    return Estimate(_metrics_of(trial).get("success"), interval_of(_metrics_of(trial)))


def _of_kind(trial: EvaluationTries | None, kind: str) -> Estimate:
    return (
        Estimate(None)
        if trial is None
        else Estimate(kinds_of(_metrics_of(trial)).get(kind), kind_interval(trial, kind))
    )


def _metrics_of(trial: EvaluationTries | None) -> Mapping[str, float]:
    return {} if trial is None else trial.evaluation.metrics


def difference_words(before: float | None, after: float | None) -> str:
    """`+6.1 points`."""
    return MISSING if before is None or after is None else points(after - before, signed=True)


def shift_lines(changes: Sequence[EvaluationChange], found: Sequence[ScoreShift | None]) -> Iterator[str]:
    """A sentence on each mode's change."""
    for change, shift in zip(changes, found, strict=True):
        if shift is not None:
            yield f"{change.mode}: {_shift_words(shift, len(changes), change.num_looks or 0)}"


def _shift_words(shift: ScoreShift, num_modes: int, num_looks: int) -> str:
    found, flipped = shift.finding, shift.flips
    if found is None:
        so_far = f"{points(shift.difference, signed=True)} so far, n = {shift.num_questions}"
        return f"no claim yet, the run is running ({so_far})"
    low, high = found.interval
    if not found.shown:
        words = f"no change is shown ({points(found.difference, signed=True)}, "
    elif found.difference > 0:
        words = f"success rose by {points(found.difference)} ("
    else:
        words = f"success fell by {points(-found.difference)} ("
        low, high = -high, -low
    words += f"{level(found.confidence)} CI {points_range(low, high)}, n = {shift.num_questions}"
    if shift.num_clusters is not None:
        words += f", {counted(shift.num_clusters, 'cluster')}"
    if flipped is not None:
        words += f", {flipped[0]} gained, {flipped[1]} lost"
    several = f" by Holm over {num_modes} modes" if num_modes > 1 else ""
    looks = f" at {counted(num_looks, 'look')} of a run that did not finish" if num_looks else ""
    return f"{words}, {p_value(found.p_adjusted)}{several}{looks})"
