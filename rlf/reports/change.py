"""The effect of a run on the held-out questions: its first evaluation against its last, question by question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlf.lineage.records import Evaluation, StoredTrajectory, TrajectoryFilter, TrajectorySummary
from rlf.reports.evaluations import first_samples, success_by_task
from rlf.reports.paired import PairedFinding, judge, paired_evidence
from rlf.reports.statistics import Interval, mcnemar, wilson_interval

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader


@dataclass(frozen=True, slots=True)
class EvaluationTries:
    """One evaluation with every try at a question."""

    evaluation: Evaluation
    tries: tuple[TrajectorySummary, ...]


@dataclass(frozen=True, slots=True)
class EvaluationChange:
    """One mode's first and last evaluation."""

    mode: str
    """`sampled` or `greedy`."""
    before: EvaluationTries
    after: EvaluationTries | None
    """None when there is one evaluation only."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Questions whose outcome changed, among those scored both times."""

    num_questions: int
    num_gained: int
    """Failed before, succeed after."""
    num_lost: int
    p: float
    """Exact McNemar test that gains and losses are equally likely."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The change of a mode over the questions scored both times."""

    finding: PairedFinding
    flips: Flips | None
    """None unless every success is 0 or 1."""
    num_questions: int


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


def read_changes(reader: Reader, run_id: str) -> tuple[EvaluationChange, ...]:
    """The change in every mode that a run was evaluated in, sampled first."""
    by_mode: dict[str, list[Evaluation]] = {}
    for evaluation in reader.evaluations(run_id):
        by_mode.setdefault(evaluation.mode, []).append(evaluation)
    return tuple(
        _read_change(reader, run_id, by_mode[mode]) for mode in sorted(by_mode, key=lambda mode: mode != "sampled")
    )


def _read_change(reader: Reader, run_id: str, found: Sequence[Evaluation]) -> EvaluationChange:
    def trial(evaluation: Evaluation) -> EvaluationTries:
        wanted = TrajectoryFilter(phase=evaluation.mode, step=evaluation.step)
        return EvaluationTries(evaluation, tuple(reader.trajectories(run_id, wanted)))

    return EvaluationChange(found[0].mode, trial(found[0]), trial(found[-1]) if len(found) > 1 else None)


def flips(change: EvaluationChange) -> Flips | None:
    """Gains and losses over the questions scored both times; None unless every success is 0 or 1.

    A question's first sample stands for it: further samples of a question are not independent of the first.
    """
    outcomes = [(pair.before.success, pair.after.success) for pair in pairs(change)]
    if not outcomes or not all(_is_binary(value) for outcome in outcomes for value in outcome):
        return None
    gained, lost = outcomes.count((0.0, 1.0)), outcomes.count((1.0, 0.0))
    return Flips(len(outcomes), gained, lost, mcnemar(gained, lost))


def shifts(changes: Sequence[EvaluationChange]) -> list[Shift | None]:
    """Judges each mode's change, the modes taken together as one report; None for fewer than two questions.

    A question's samples are averaged where it has several.
    """
    tries = [(change.before.tries, () if change.after is None else change.after.tries) for change in changes]
    sides = [(success_by_task(before), success_by_task(after)) for before, after in tries]
    binary = [all(_is_binary(value) for side in pair for value in side.values()) for pair in sides]
    findings = judge([paired_evidence(*pair, binary=one) for pair, one in zip(sides, binary, strict=True)])
    return [
        None if finding is None else Shift(finding, flips(change), len(before.keys() & after.keys()))
        for change, (before, after), finding in zip(changes, sides, findings, strict=True)
    ]


def gained_pair(changes: Sequence[EvaluationChange]) -> Pair | None:
    """A question that failed before and succeeds after: the one with most turns, of the first mode that has any."""
    for change in changes:
        gained = [pair for pair in pairs(change) if pair.before.success == 0.0 and pair.after.success == 1.0]
        if gained:
            return max(gained, key=lambda pair: pair.after.num_turns)
    return None


def read_example(reader: Reader, run_id: str, pair: Pair) -> GainedQuestion:
    """Both trajectories of a pair, whole."""
    before, after = (
        reader.trajectory(run_id, k=summary.k, step=summary.step, phase=summary.phase)
        for summary in (pair.before, pair.after)
    )
    return GainedQuestion(before, after)


def pairs(change: EvaluationChange) -> list[Pair]:
    """The first samples of every question that was scored both times."""
    if change.after is None:
        return []
    before, after = first_samples(change.before.tries), first_samples(change.after.tries)
    return [Pair(before[task], after[task]) for task in before if task in after]


def kind_interval(trial: EvaluationTries, kind: str) -> Interval | None:
    """95 % interval of a kind's success; None unless each question was tried once and succeeds or fails."""
    tries = [item for item in trial.tries if item.kind == kind]
    values = [item.success for item in tries if item.success is not None]
    once = len({item.task_id for item in tries}) == len(tries)
    if not values or not once or not all(_is_binary(value) for value in values):
        return None
    return wilson_interval(sum(values), len(values))


def _is_binary(value: float | None) -> bool:
    return value in (0.0, 1.0)
