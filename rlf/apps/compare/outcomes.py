"""How results differ: one arm at a time, and each arm against the first. Pure functions of what was read.

Two kinds of uncertainty are told apart. With one run on a side, the interval is over the held-out questions: it speaks
of these trained models. With two or more seeds on both sides it is over seeds and questions: it speaks of the settings.
Both are of the questions that every run scored: a mean over whatever a run scored shows which questions an outage
spared. Where questions belong to clusters, both count these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from rlf.apps.compare.arms import Arm, ArmMember, shared_step
from rlf.lineage.records import EVALUATION, TrajectorySummary
from rlf.reports.graded import area_under, mean_share, share_interval, welch_error
from rlf.reports.paired import Evidence, PairedFinding, judge, paired_evidence
from rlf.reports.statistics import Estimate, Interval, Spread, find_edge, find_spread, student_quantile
from rlf.reports.success import first_samples, success_by_task
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TAIL = 0.1
"""Share of a run's steps, the last ones, that a metric's figure is the mean of."""


@dataclass(frozen=True, slots=True)
class ReachedStep:
    """The cost until held-out success first was at the threshold or above, mean over the runs that got there."""

    num_runs: int
    """Runs that got there."""
    step: float
    tokens: float
    """Of the training trajectories, prompts and observations included."""
    tool_calls: float
    wall_s: float
    """Time of the training steps, evaluations left out."""


@dataclass(frozen=True, slots=True)
class ArmOutcome:
    """One arm's results on the held-out questions and in training: means over its runs.

    Intervals are over the seeds where there are several, over the questions for one run's success, else absent.
    """

    final: Estimate | None
    """Success at the last evaluation; of several runs on the questions that all of them scored."""
    best: Estimate | None
    area: Estimate | None
    """Mean height of the learning curve, by trapezoids over the steps."""
    reached: ReachedStep | None
    """None: no run got to the threshold."""
    metrics: dict[str, float]
    """Step metrics, mean over the last tenth of the steps and over the runs."""


class Basis(StrEnum):
    """The values that an interval of a difference is over."""

    SEEDS = "seeds"
    """An interval over the runs of each arm and the questions that all of them scored, crossed."""
    QUESTIONS = "questions"
    """Tango's score interval over the questions that every run scored, or one of the mean of graded ones."""
    UNPAIRED = "unpaired"
    """No question was scored in every run, so there is no interval and nothing is claimed."""
    RUNNING = "running"
    """A run has not ended: who looks at each evaluation would find a difference of nothing in up to a third of the
    runs, so there is no interval yet and nothing is claimed."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A question whose outcome differs between the first runs of two arms."""

    task_id: str
    left: TrajectorySummary
    right: TrajectorySummary

    @property
    def gained(self) -> bool:
        """Whether the right side solves it."""
        return (self.right.success or 0.0) > (self.left.success or 0.0)


@dataclass(frozen=True, slots=True)
class Contrast:
    """An arm against the baseline, at the newest step that both were evaluated at or at the last of each."""

    step: int | None
    """Updates before both; None: the last of each is compared, whatever came before it."""
    difference: float
    """Mean success of the arm minus the baseline's, on the same questions unless UNPAIRED."""
    means: tuple[float, float]
    """The baseline's and the arm's, of which `difference` is the difference."""
    interval: Interval | None
    """Holds 0 exactly where the difference is not shown; None where there are too few values."""
    confidence: float
    """Of the interval: 0.95 for two arms; for more that of the step at which Holm's procedure tests the arm."""
    basis: Basis
    num_questions: int
    """Scored in every run; for UNPAIRED those that any run of a side scored, on the side with fewer."""
    num_not_shared: int
    """Questions that some runs scored and others did not."""
    num_lacking: tuple[int, int]
    """Of these, the ones that some run of the baseline did not score, and some run of the arm."""
    num_clusters: int | None
    """Documents, worlds or templates of the questions; None where none are named."""
    num_looks: int
    """Evaluations so far of a run that ended before it finished: each may have been why. 0 where all finished."""
    num_seeds: tuple[int, int]
    num_gained: int
    num_lost: int
    binary: bool
    """Whether each side is one run and every success is 0 or 1: then the test is the exact one on the flips."""
    p: float | None
    """Of the arm alone: the exact McNemar test, over seeds that of the interval; for the looks of unfinished runs."""
    p_adjusted: float | None
    """Adjusted by Holm for all arms."""
    num_compared: int
    """Arms that were compared with the baseline."""
    shown: bool
    """Whether the arm may be called better or worse: the adjusted p is at most 0.05 and the interval excludes 0."""
    flips: tuple[Flip, ...] = field(metadata={"json": None})
    JSON_PROPERTIES: ClassVar = {"flips": "flipped"}

    @property
    def flipped(self) -> tuple[str, ...]:
        """Ids of the questions whose outcome differs."""
        return tuple(flip.task_id for flip in self.flips)


def outcome(arm: Arm, mode: str, threshold: float) -> ArmOutcome:
    """One arm's results in a mode of evaluation."""
    curves = [member.curve(mode) for member in arm.members]
    curves = [curve for curve in curves if curve]
    finals = [curve[-1].metrics["success"] for curve in curves]
    bests = [max(found.metrics["success"] for found in curve) for curve in curves]
    areas = [area_under([e.step for e in curve], [e.metrics["success"] for e in curve]) for curve in curves]
    scored = [success_by_task(tries_at(member, mode, None)) for member in arm.members]
    if len(scored) > 1 and (shared := sorted(set.intersection(*map(set, scored)))):
        finals = [fmean(found[task] for task in shared) for found in scored]
    final = mean_share(finals)
    if final is not None and len(finals) == 1:
        last = arm.members[0].last_step(mode)
        final = Estimate(final.value, _over_questions(arm.members[0], tries_at(arm.members[0], mode, last)))
    return ArmOutcome(
        final=final,
        best=mean_share(bests),
        area=mean_share([area for area in areas if area is not None]),
        reached=_find_reached(arm, mode, threshold),
        metrics=_tail_metrics(arm),
    )


def tries_at(member: ArmMember, mode: str, step: int | None) -> Sequence[TrajectorySummary]:
    """The tries of one evaluation. Args: step: None for the last one."""
    at = member.last_step(mode) if step is None else step
    return () if at is None else member.tries.get((mode, at), ())


def _over_questions(member: ArmMember, tries: Sequence[TrajectorySummary]) -> Interval | None:
    found = success_by_task(tries)
    if not found or not 0 <= min(found.values()) <= max(found.values()) <= 1:
        return None
    return share_interval(list(found.values()), find_spread(found, member.clusters, are_shares=True))


def default_threshold(arms: Sequence[Arm], mode: str) -> float:
    """Nine tenths of the best success that any run of any arm had."""
    found = [e.metrics["success"] for arm in arms for member in arm.members for e in member.curve(mode)]
    return 0.9 * max(found, default=1.0)


def _find_reached(arm: Arm, mode: str, threshold: float) -> ReachedStep | None:
    found = [item for item in (_cost_to_reach(member, mode, threshold) for member in arm.members) if item is not None]
    if not found:
        return None
    steps, tokens, calls, walls = zip(*found, strict=True)
    return ReachedStep(len(found), fmean(steps), fmean(tokens), fmean(calls), fmean(walls))


def _cost_to_reach(member: ArmMember, mode: str, threshold: float) -> tuple[int, int, int, float] | None:
    step = next((e.step for e in member.curve(mode) if e.metrics["success"] >= threshold), None)
    if step is None:
        return None
    before = [total for total in member.totals if total.step <= step]
    wall_s = sum(done.metrics.get("time/step_s", 0.0) for done in member.steps if done.step <= step)
    return step, sum(t.num_tokens for t in before), sum(t.num_calls for t in before), wall_s


def _tail_metrics(arm: Arm) -> dict[str, float]:
    by_member = [_tail_of(member) for member in arm.members]
    names = dict.fromkeys(name for found in by_member for name in found)
    return {name: fmean(found[name] for found in by_member if name in found) for name in names}


def _tail_of(member: ArmMember) -> dict[str, float]:
    last = member.steps[-max(1, round(_TAIL * len(member.steps))) :]
    names = dict.fromkeys(name for step in last for name in step.metrics)
    return {name: fmean(step.metrics[name] for step in last if name in step.metrics) for name in names}


def contrasts(arms: Sequence[Arm], mode: str, *, at_ends: bool = False) -> tuple[Contrast | None, ...]:
    """Each arm after the first against it, all as one report.

    None where a side was not evaluated in the mode, or never after as many updates as the other.

    Args:
        at_ends: whether the last evaluations are compared although they follow different numbers of updates.
    """
    matches = [_match_arms(arms[0], arm, mode, at_ends=at_ends) for arm in arms[1:]]
    findings = judge([None if match is None else match[1] for match in matches])
    num_compared = sum(finding is not None for finding in findings)
    return tuple(
        None if match is None else _judge_contrast(match[0], finding, num_compared)
        for match, finding in zip(matches, findings, strict=True)
    )


def _judge_contrast(found: Contrast, finding: PairedFinding | None, num_compared: int) -> Contrast:
    if finding is None:
        return replace(found, num_compared=num_compared)
    return replace(
        found,
        interval=finding.interval,
        confidence=finding.confidence,
        p=finding.p,
        p_adjusted=finding.p_adjusted,
        num_compared=num_compared,
        shown=finding.shown,
    )


def find_no_share(arms: Sequence[Arm], mode: str, step: int | None) -> str | None:
    """The first run whose success is no share of 0 to 1, in words: no interval holds for it, and no clipping heals it.

    `rlf check` refuses such a success where the term's range is known; that of a function without `range` is not.
    """
    for member in (member for arm in arms for member in arm.members):
        values = success_by_task(tries_at(member, mode, step)).values()
        if values and not 0 <= min(values) <= max(values) <= 1:
            return f"run {member.run.record.id} has successes from {min(values):g} to {max(values):g}"
    return None


Side = list[dict[str, float]]


def _match_arms(left: Arm, right: Arm, mode: str, *, at_ends: bool) -> tuple[Contrast, Evidence | None] | None:
    """Two arms brought together, before it is known how many others there are."""
    step = None if at_ends else shared_step([left, right], mode)
    trained = all(member.run.record.engine != EVALUATION for arm in (left, right) for member in arm.members)
    if step is None and trained and not at_ends:
        return None
    sides = [[success_by_task(tries_at(member, mode, step)) for member in arm.members] for arm in (left, right)]
    if not all(found for side in sides for found in side) or find_no_share((left, right), mode, step) is not None:
        return None
    scored = [set(found) for side in sides for found in side]
    shared, any_scored = set.intersection(*scored), set.union(*scored)
    means = [_mean_by_question(side, shared) for side in sides]
    single = all(len(side) == 1 for side in sides)
    binary = single and all(value in (0.0, 1.0) for side in sides for value in side[0].values())
    members = [member for arm in (left, right) for member in arm.members]
    clusters = {task: name for member in members for task, name in member.clusters.items() if task in shared}
    evidence, basis = find_evidence(sides, clusters, binary=binary)
    num_looks = max(_count_looks(member, mode, step) for member in members)
    if any(member.run.status is RunStatus.RUNNING for member in members):
        evidence, basis = None, Basis.RUNNING
    flips = _find_flips(left.members[0], right.members[0], mode, step)
    contrast = Contrast(
        step=step,
        difference=fmean(means[1].values()) - fmean(means[0].values()),
        means=(fmean(means[0].values()), fmean(means[1].values())),
        interval=None,
        confidence=0.95,
        basis=basis,
        num_questions=min(map(len, means)),
        num_not_shared=len(any_scored - shared),
        num_lacking=(_count_lacking(sides[0], any_scored), _count_lacking(sides[1], any_scored)),
        num_clusters=len({clusters.get(task, (task,)) for task in shared}) if clusters else None,
        num_looks=num_looks,
        num_seeds=(len(sides[0]), len(sides[1])),
        num_gained=sum(flip.gained for flip in flips),
        num_lost=sum(not flip.gained for flip in flips),
        binary=binary and basis is Basis.QUESTIONS,
        p=None,
        p_adjusted=None,
        num_compared=1,
        shown=False,
        flips=tuple(flips),
    )
    return contrast, evidence if evidence is None else evidence.after_looks(num_looks)


def _count_looks(member: ArmMember, mode: str, step: int | None) -> int:
    """The evaluations after which a run that did not finish may have been ended."""
    if member.run.status is RunStatus.FINISHED:
        return 0
    return sum(step is None or found.step <= step for found in member.curve(mode))


def find_evidence(sides: Sequence[Side], clusters: Mapping[str, str], *, binary: bool) -> tuple[Evidence | None, Basis]:
    """What the runs of two sides show, of the questions that all of them scored.

    Args:
        clusters: What a question belongs to.
        binary: Whether each side is one run, and each success 0 or 1.
    """
    shared = set[str].intersection(*(set(run) for side in sides for run in side))
    if not shared:
        return None, Basis.UNPAIRED
    left, right = ([{task: run[task] for task in sorted(shared)} for run in side] for side in sides)
    if (over_seeds := crossed_evidence(left, right, clusters)) is not None:
        return over_seeds, Basis.SEEDS
    means = [_mean_by_question(side, shared) for side in sides]
    return paired_evidence(means[0], means[1], binary=binary, cluster_by_task=clusters), Basis.QUESTIONS


def _mean_by_question(side: Side, shared: set[str]) -> dict[str, float]:
    """Each shared question's mean success over the runs of a side; where none is shared, of all that a run scored."""
    tasks = sorted(shared or set[str]().union(*side))
    return {task: fmean(run[task] for run in side if task in run) for task in tasks}


def _count_lacking(side: Side, tasks: set[str]) -> int:
    return sum(any(task not in run for run in side) for task in tasks)


def _find_flips(left: ArmMember, right: ArmMember, mode: str, step: int | None) -> list[Flip]:
    """Questions whose first samples came out differently."""
    sides = [first_samples(tries_at(member, mode, step)) for member in (left, right)]
    shared = [task for task in sides[0] if task in sides[1]]
    flips = [Flip(task, sides[0][task], sides[1][task]) for task in shared]
    return [flip for flip in flips if flip.left.success != flip.right.success]


Runs = Sequence[Mapping[str, float]]
"""The runs of a side: of each the success by question, the same questions in all runs of both sides."""


def crossed_evidence(left: Runs, right: Runs, cluster_by_task: Mapping[str, str]) -> Evidence | None:
    """Of sides of several runs: what other seeds and other questions would have given, in one interval.

    Each run answers every question, so that seeds and questions are crossed. The variance of a difference of means is
    that between the runs of a side, `a`, and that between the questions' differences, `b` (in clusters by these), less
    what both hold of single answers, `c`, Cameron, Gelbach and Miller 2011. The interval is the difference ±
    sqrt(t(runs)² max(0, a - w c) + t(questions)² b), after Graybill and Wang 1980, with Welch's degrees of freedom for
    the runs: one degree for both parts would trust two or three runs too far. So would w = 1 where `a` is small by
    chance: w = max(1/2, 1 - 2 / degrees) holds 95 % whatever varies (`benchmarks/claims.py`).

    Returns:
        None where a side is one run, nothing varies between the runs of a side, or there is one question.
    """
    import numpy as np

    tasks = sorted(left[0])
    sides = [np.array([[run[task] for task in tasks] for run in runs]) for runs in (left, right)]
    means = [side.mean(1) for side in sides]
    between_runs = welch_error(means[0].tolist(), means[1].tolist(), cautious=True)
    if between_runs is None or len(tasks) < 2:
        return None
    change = sides[1].mean(0) - sides[0].mean(0)
    spread = find_spread(dict(zip(tasks, change.tolist(), strict=True)), cluster_by_task)
    spread = spread or Spread(1.0, len(tasks) - 1)
    of_questions = float(change.var(ddof=1)) / len(tasks) * spread.inflation
    error, freedom = between_runs
    of_answers = max(0.5, 1 - 2 / freedom) * sum(_variance_of_answers(side) for side in sides)
    of_runs = max(0.0, error**2 - of_answers)
    difference = float(change.mean())

    def half(confidence: float) -> float:
        of_seeds = student_quantile(confidence, freedom)
        return math.sqrt(of_seeds**2 * of_runs + student_quantile(confidence, spread.freedom) ** 2 * of_questions)

    return Evidence(
        difference,
        # The p-value whose interval ends at 0: 1 - confidence where half the interval is the difference.
        find_edge(lambda p: half(1 - p) > abs(difference), 0.0, 1.0),
        lambda level: Interval(difference - half(level), difference + half(level)).within(-1.0, 1.0),
    )


def _variance_of_answers(side: NDArray[np.float64]) -> float:
    """What single answers add to the variance of a side's mean: the interaction of runs and questions."""
    num_runs, num_questions = side.shape
    rest = side - side.mean(1, keepdims=True) - side.mean(0) + side.mean()
    return float((rest**2).sum() / ((num_runs - 1) * (num_questions - 1) * num_runs * num_questions))
