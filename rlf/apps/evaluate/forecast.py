"""`rlf forecast`: a run's first steps, foretold from groups of its training set that are played without an update.

The groups are an evaluation like any other: recorded, continued by the same command, shown by `rlf trace`. What is said
of a step are intervals in which its figure lies four times out of five. Pure but for `forecast`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, variance
from typing import NamedTuple

from rlf.apps.evaluate.outlook import (
    CUT,
    Curve,
    CutLimit,
    GpuOutlook,
    Hindrance,
    Obstacle,
    StepsOutlook,
    expect_cost,
    expect_curve,
    expect_differing,
    expect_gpus,
    expect_learning,
    expect_steps,
    find_obstacle,
    find_questions,
    read_budgets,
)
from rlf.apps.evaluate.play import EvaluationProgress
from rlf.apps.evaluate.prepare import EvaluationOptions
from rlf.apps.evaluate.run import Show, Shown, try_targets
from rlf.core.errors import RunError
from rlf.core.plain_json import Jsonable
from rlf.endpoints.spec import EndpointSpec
from rlf.engines.engine import Inputs
from rlf.reports.statistics import student_quantile
from rlf.rollout.collect import dead_share, rollout_metrics, wait_share
from rlf.rollout.diagnosis import find_causes
from rlf.rollout.signal import Signal, step_signal
from rlf.runs.place import open_reader
from rlf.runs.planning import StepTime, step_time_of
from rlf.runs.plans import check_spec
from rlf.runs.sink import diagnosis_setting
from rlf.spec import RunSpec
from rlf.spec.engines import Feature
from rlf.training.counting import is_kept
from rlf.types import EvaluationFinished, RunStatus, Scored
from rlf.types.score import costs_by_name

CONFIDENCE = 0.8
"""With which a step's figure lies in its interval."""
METRICS = {
    "success": "success",
    "reward": "reward/mean",
    "dead": "groups/dead_share",
    "tokens": "tokens/sampled",
    "sampling_s": "time/generate_s",
}
"""Figures with an interval, and the metric of a step that each is compared with."""
_FEW_MIXED = 0.5
"""Share of groups that differ below which more generations are worth a word."""
_LIKELY = 0.5
"""Chance of learning below which what stands in the way is named."""
_IMITATES = (
    "data.demonstrations: {} steps imitate before any is sampled, and all of this is of the policy before them; "
    "cannot say what it learns from there on. Forecast again with `model.path` the model that they leave."
)
_MOST_WAIT = 0.5
"""Share of a trajectory's time in its tools from which they are what limits sampling."""


class StepFigure(NamedTuple):
    """A figure of one step."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class KindOutlook:
    """One kind of question."""

    kind: str
    num_groups: int
    success: float | None
    all_right: float
    """Share of its groups."""
    all_wrong: float


@dataclass(frozen=True, slots=True)
class TermSignal:
    """What a reward term adds to the order within groups."""

    term: str
    mean: float | None
    differs: float
    """Share of the groups in which it is not the same for all."""
    share: float | None
    """Of the rewards' variance within groups; None where no group's rewards differ."""
    num_missing: int
    """Trajectories that it has no value for."""


@dataclass(frozen=True, slots=True)
class Forecast(Jsonable):
    """What a run's first steps will be like."""

    name: str
    plan_hash: str
    run_id: str
    """The evaluation with the trajectories that this rests on."""
    num_groups: int
    num_generations: int
    num_counted: int
    """Trajectories with a reward."""
    groups_per_step: int
    success: StepFigure | None
    reward: StepFigure | None
    dead: StepFigure | None
    """Share of groups whose rewards are equal."""
    tokens: StepFigure | None
    """Sampled, of a trajectory; None for a model behind a server."""
    sampling_s: StepFigure | None
    """Of a step, on this machine; None for fewer than two steps' worth of groups."""
    kinds: tuple[KindOutlook, ...]
    differing: Mapping[int, float]
    """Share of groups in which some succeed and some fail, by `rollout.num_generations`; empty where success is
    graded."""
    num_questions: int | None
    """Held-out questions that show a change of 5 points with a chance of 80 %; None where success is graded."""
    terms: tuple[TermSignal, ...]
    stops: Mapping[str, float]
    budgets: tuple[CutLimit, ...]
    parse_failures: Mapping[str, int]
    calls: float
    """Of a trajectory."""
    waiting: float
    """Share of a trajectory's time that its tools take."""
    cost_usd: float
    """Of a step's tools and judges."""
    run_cost_usd: float
    """Of the whole run's, its evaluations included, as the policy changes."""
    num_steps: int
    signal: Signal
    learns: float
    """The chance that held-out success rises by more than chance explains."""
    causes: tuple[Hindrance, ...]
    """Why it will probably not; empty where it will."""
    step_time: StepTime | None
    """Of earlier runs of the same plan."""
    steps: StepsOutlook | None
    """When like runs had learned; None where there are none."""
    gpus: GpuOutlook | None
    """Whether it fits the GPUs that were named."""
    came_true: Mapping[str, tuple[tuple[int, float], ...]]
    """What the newest run of this plan had: steps and values, by the name of the figure; empty where there is none."""
    advice: tuple[str, ...]


def measure_steps(seen: Sequence[tuple[int, float]], size: int) -> list[float]:
    """Seconds of each step's worth of trajectories, from how many were over at which time; the first were before."""
    marks: dict[int, float] = {}
    for number, at_s in seen:
        marks.setdefault((number - seen[0][0]) // size, at_s)
    return [(then - now) / (later - step) for (step, now), (later, then) in pairwise(marks.items())]


def forecast(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    num_groups: int | None,
    gpus: str | None = None,
    endpoint: EndpointSpec | None = None,
    runs_folder: Path,
    command: Sequence[str],
    show: Show,
) -> Forecast:
    """Plays groups of the training set as training would, and says what they let expect.

    Args:
        num_groups: None: two steps' worth, and at least 32.
        gpus: what the run is meant for, e.g. `8xH100`.

    Raises:
        RlfError, SpecError: the spec is wrong, or what was played says nothing.
    """
    checked = check_spec(files, overrides)
    plan, spec = checked.plan, checked.plan.spec
    fit = None if gpus is None else expect_gpus(files, overrides, gpus, runs_folder)
    per_step = spec.train.prompts_per_step
    num_groups = num_groups or max(32, 2 * per_step)
    asked = EvaluationOptions(tuple(files), tuple(overrides), groups=num_groups)
    seen, played = list[tuple[int, float]](), list[Scored]()

    def watch(shown: Shown) -> None:
        if isinstance(shown, EvaluationProgress):
            seen.append((shown.num_done, time.perf_counter()))
        if isinstance(shown, EvaluationFinished):
            played.extend(shown.trajectories)
        show(shown)

    names = [spec.model.path] if endpoint is None else []
    done = try_targets(names, asked, endpoint=endpoint, runs_folder=runs_folder, command=command, show=watch)
    if not played:  # where none could be scored, they say why
        end = RunError(f"forecast: the groups were not played to their end: {done.reason or done.status}. Try again.")
        end.exit_code = 130 if done.status is RunStatus.INTERRUPTED else end.exit_code
        raise end
    found = read_forecast(
        played,
        spec,
        plan_hash=plan.plan_hash,
        run_id=done.run_ids[0],
        times=measure_steps(seen, per_step * spec.rollout.num_generations),
        inputs=checked.inputs,
    )
    step_time = step_time_of(plan, runs_folder)
    came_true = dict[str, tuple[tuple[int, float], ...]]()
    if step_time is not None:
        with open_reader(runs_folder) as reader:
            steps = reader.steps(step_time.run_ids[-1])
        for figure, metric in METRICS.items():
            came_true[figure] = tuple((one.step, one.metrics[metric]) for one in steps if metric in one.metrics)
    return replace(found, step_time=step_time, steps=expect_steps(plan, runs_folder), gpus=fit, came_true=came_true)


def read_forecast(
    played: Sequence[Scored], spec: RunSpec, *, plan_hash: str, run_id: str, times: Sequence[float], inputs: Inputs
) -> Forecast:
    """What trajectories let expect.

    Args:
        times: of each step's worth of them, in seconds.
        inputs: training tasks, of which these are a sample, and held-out questions.
    """
    counted = [item for item in played if item.reward is not None]
    groups, per_step = _group(counted), spec.train.prompts_per_step
    metrics = rollout_metrics(played)
    figures = metrics | {"groups/dead_share": dead_share(counted), "groups/kept": float(expect_kept(groups, spec))}
    by_group = spec.train.algorithm.needs_group
    signal = step_signal(figures, by_group=by_group)
    successes = [[item.success for item in group if item.success is not None] for group in groups]
    whole = [values for values in successes if values]
    differing = expect_differing(whole) if all(set(values) <= {0.0, 1.0} for values in whole) else {}
    sampled = [fmean(item.trajectory.num_sampled for item in group) for group in groups]
    curve = expect_curve(groups, spec.train)
    learns = expect_learning(curve, signal, spec.train, len(inputs.evaluation), differing.get(2, 0.0) / 2)
    failures = Counter(str(each.kind) for item in played for each in item.trajectory.failures)
    shown = spec.data.demonstrations
    imitates = [] if shown is None else [_IMITATES.format(shown.steps or "all")]
    result = Forecast(
        name=spec.name,
        plan_hash=plan_hash,
        run_id=run_id,
        num_groups=len({item.trajectory.task.id for item in played}),
        num_generations=spec.rollout.num_generations,
        num_counted=len(counted),
        groups_per_step=per_step,
        success=expect([fmean(values) for values in whole], per_step, 0.0, 1.0),
        reward=expect([fmean(item.reward or 0.0 for item in group) for group in groups], per_step),
        dead=expect([float(is_dead(group)) for group in groups], per_step, 0.0, 1.0),
        tokens=expect(sampled, per_step, 0.0) if any(sampled) else None,
        sampling_s=expect(times, 1, 0.0) if len(times) > 1 else None,
        kinds=tuple(_read_kinds(groups)),
        differing=differing,
        num_questions=find_questions(differing[2] / 2) if 2 in differing else None,
        terms=tuple(_read_terms(groups, metrics)),
        stops={name.removeprefix("stop/"): share for name, share in metrics.items() if name.startswith("stop/")},
        budgets=tuple(read_budgets(played, spec)),
        parse_failures=dict(failures.most_common()),
        calls=metrics["tools/calls_per_trajectory"],
        waiting=wait_share(played),
        cost_usd=sum(costs_by_name(played).values()) / len(played) * per_step * spec.rollout.num_generations,
        run_cost_usd=expect_cost(
            _group(played), curve, spec, len(inputs.evaluation), Counter(task.kind for task in inputs.train)
        ),
        num_steps=spec.train.steps,
        signal=signal,
        learns=learns,
        causes=tuple(find_hindrances(played, signal, spec, curve)) if learns < _LIKELY and not shown else (),
        step_time=None,
        steps=None,
        gpus=None,
        came_true={},
        advice=(),
    )
    return replace(result, advice=(*imitates, *_advise(result, by_group=by_group)))


def find_hindrances(
    played: Sequence[Scored], signal: Signal, spec: RunSpec, curve: Curve | None
) -> Iterator[Hindrance]:
    """Why a run will probably not learn: its rate, or what trajectories show.

    Some that are right by chance hide no cause: the others are looked at as if none was.
    """
    obstacle = find_obstacle(curve, spec.train)
    if obstacle is not None and (signal is Signal.SOME or obstacle.kind is Obstacle.SOLVED):
        yield obstacle
        return
    wrong = [item for item in played if not item.success] if signal is Signal.SOME else played
    for cause in find_causes(wrong, Signal.NO_SUCCESS if signal is Signal.SOME else signal, diagnosis_setting(spec)):
        yield Hindrance(cause.kind, cause.seen, cause.advice)


def expect(values: Sequence[float], num_new: int, low: float = -math.inf, high: float = math.inf) -> StepFigure | None:
    """The mean of `num_new` further values, by Student's prediction interval:

    mean ± t(n - 1) s sqrt(1 / n + 1 / m). As `share_interval` does, the smallest and the largest count once more (the
    bounds, where all are equal), so that it does not vanish where few differ. None for fewer than two values.
    """
    if len(values) < 2:
        return None
    least, most = min(values), max(values)
    if most == least and math.isfinite(high):
        least, most = low, high
    widened = [*values, least, most]
    spread = variance(widened) * (1 / len(widened) + 1 / num_new)
    half = student_quantile(CONFIDENCE, len(values) - 1) * math.sqrt(spread)
    mean = fmean(values)
    return StepFigure(mean, max(low, mean - half), min(high, mean + half))


def expect_kept(groups: Sequence[Sequence[Scored]], spec: RunSpec) -> int:
    """Groups of a step that dynamic filtering keeps and that can be learned from, of all that the step may draw."""
    filtering, per_step = spec.train.dynamic_filtering, spec.train.prompts_per_step
    if filtering is None:
        return per_step
    by_group = spec.train.algorithm.needs_group
    kept = [group for group in groups if is_kept([item.reward or 0.0 for item in group], filtering)]
    kept = [group for group in kept if not (by_group and is_dead(group))]
    if not kept or is_dead([item for group in kept for item in group]):
        return 0
    if filtering.bounds is None or Feature.FILTER_ROUNDS in spec.engine.LACKS:  # drops nothing, or draws until full
        return per_step
    return min(per_step, round(len(kept) / len(groups) * per_step * filtering.max_rounds))


def is_dead(group: Sequence[Scored]) -> bool:
    """Whether a group's rewards are equal."""
    return len({item.reward for item in group}) == 1


def _group(counted: Sequence[Scored]) -> list[list[Scored]]:
    found: dict[str, list[Scored]] = {}
    for item in counted:
        found.setdefault(item.trajectory.task.id, []).append(item)
    return list(found.values())


def _read_kinds(groups: Sequence[Sequence[Scored]]) -> Iterator[KindOutlook]:
    by_kind: dict[str, list[list[float]]] = {}
    for group in groups:
        kind = group[0].trajectory.task.kind
        if kind is not None:
            by_kind.setdefault(kind, []).append([item.success for item in group if item.success is not None])
    for kind, found in sorted(by_kind.items()):
        known = [values for values in found if values]
        yield KindOutlook(
            kind,
            len(found),
            fmean(fmean(values) for values in known) if known else None,
            sum(min(values) >= 1.0 for values in known) / len(found),
            sum(max(values) <= 0.0 for values in known) / len(found),
        )


def _read_terms(groups: Sequence[Sequence[Scored]], metrics: Mapping[str, float]) -> Iterator[TermSignal]:
    for at, score in enumerate(groups[0][0].scores if groups else ()):
        differs = [len({item.scores[at].contribution for item in group}) > 1 for group in groups]
        prefix = f"rewards/{score.term}"
        yield TermSignal(
            score.term,
            metrics.get(f"{prefix}/mean"),
            fmean(differs),
            metrics.get(f"{prefix}/share"),
            round(metrics.get(f"{prefix}/unscorable", 0.0)),
        )


def _advise(found: Forecast, *, by_group: bool) -> Iterator[str]:
    for cause in found.causes:
        yield f"{cause.seen}. {cause.advice}"
    now = found.differing.get(found.num_generations, 0.0)
    more = {k: share for k, share in found.differing.items() if k > found.num_generations}
    if by_group and found.signal is Signal.SOME and 0 < now < _FEW_MIXED and more:
        k, share = next(iter(more.items()))
        yield (
            f"rollout.num_generations: {100 * now:.0f} % of the groups have both outcomes at {found.num_generations}; "
            f"about {100 * share:.0f} % would at {k}."
        )
    for budget in found.budgets:
        if budget.cut > CUT:
            needed = (
                f"fewer than 1 % would be from about {budget.needed:,}"
                if budget.needed is not None
                else "those that ended by themselves do not say how much would be enough; try twice as much"
            )
            yield f"{budget.key}: {100 * budget.cut:.1f} % are cut at {budget.limit:,}; {needed}."
    for term in found.terms:
        if term.differs == 0 and len(found.terms) > 1 and found.signal is Signal.SOME:
            yield f"reward term {term.term!r}: the same for all of each group, so that it teaches nothing yet."
    for kind in found.kinds:
        if kind.all_wrong + kind.all_right == 1 and kind.num_groups > 1:
            wrong = f"({100 * kind.all_wrong:.0f} % wrong)"
            yield f"kind {kind.kind!r}: every group is all right or all wrong {wrong}: nothing is learned from it yet."
    if found.waiting > _MOST_WAIT:
        yield (
            f"tools take {100 * found.waiting:.0f} % of a trajectory's time: raise rollout.max_concurrency and the "
            "tools' limits.max_concurrency."
        )
