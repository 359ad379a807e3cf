"""Steps at which a figure of a run changes its level: what its curves and the behaviour behind them did, and when.

Pure: trajectories and metrics in, breaks out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median, median_high, variance
from typing import NamedTuple

from rlf.lineage.records import StoredTrajectory, TrainingStep
from rlf.rollout.rollout import NOT_RUN
from rlf.types.trajectory import CallRecord, StopReason

_LEAST_Z = 5.0
"""Standard errors that a change of level is at least: several figures are looked at, each at every step."""
_KNOWN_Z = 1.5
"""The same where it is known from elsewhere that there is one."""


class Point(NamedTuple):
    """A figure at a step."""

    step: int
    value: float
    error: float
    """Its standard error; 0 of a figure that is not a mean over groups."""


@dataclass(frozen=True, slots=True)
class Break:
    """A change of a figure's level."""

    figure: str
    step: int
    """The first of the new level."""
    before: float
    """Mean of the steps of the level before it."""
    after: float
    z: float
    """The difference in standard errors."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What is looked at of each trajectory."""

    name: str
    value: Callable[[StoredTrajectory], float | None]
    """None where the trajectory has none."""
    least: float
    """Change of its level below which there is no break: a share of itself where it is no share."""
    is_share: bool = True


def ran(item: StoredTrajectory, tool: str | None = None) -> list[CallRecord]:
    """The calls of a trajectory that were run."""
    calls = item.scored.trajectory.calls
    return [one for one in calls if one.result != NOT_RUN and tool in (None, one.call.name)]


def _stopped(reason: StopReason) -> Callable[[StoredTrajectory], float]:
    return lambda item: float(item.summary.stop is reason)


SUCCESS = Figure("success", lambda item: item.summary.success if item.summary.reward is not None else None, 0.1)
BEHAVIOUR = (
    SUCCESS,
    Figure("reward", lambda item: item.summary.reward, 0.1),
    Figure("without a reward", lambda item: float(item.summary.reward is None), 0.1),
    Figure("calls a trajectory", lambda item: float(item.summary.num_calls), 0.3, is_share=False),
    Figure("tokens sampled", lambda item: float(item.summary.num_sampled), 0.3, is_share=False),
    Figure("turns that could not be read", lambda item: float(bool(item.scored.trajectory.failures)), 0.1),
    Figure("answered", _stopped(StopReason.ANSWERED), 0.15),
    Figure("cut by a token budget", _stopped(StopReason.LENGTH), 0.15),
)
METRICS = {"policy/entropy": 0.5, "policy/kl_old": 0.5, "policy/grad_norm": 0.8, "policy/clip_fraction": 0.5}
"""Metrics of steps, and by which share of the larger level they change at least."""


def points_of(items: Sequence[StoredTrajectory], figure: Figure) -> list[Point]:
    """A figure step by step, its error from the groups of the step."""
    by_step: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        value = figure.value(item)
        if value is not None:
            by_step[item.summary.step][item.summary.task_id].append(value)
    return [_make_point(step, [fmean(each) for each in groups.values()], figure) for step, groups in by_step.items()]


def _make_point(step: int, means: Sequence[float], figure: Figure) -> Point:
    mean, num = fmean(means), len(means)
    if figure.is_share:  # all alike in a few groups is no proof that there is no spread (Agresti and Coull 1998)
        likely = (mean * num + 1) / (num + 2)
        least = likely * (1 - likely) / (num + 2)
    else:
        least = (0.1 * mean) ** 2 / num
    return Point(step, mean, math.sqrt(max(variance(means) / num if num > 1 else 0.0, least)))


def find_breaks(
    figure: str, points: Sequence[Point], least: float, *, is_share: bool = True, least_z: float = _LEAST_Z
) -> list[Break]:
    """The changes of level, by binary segmentation: the clearest first, then those on either side of it.

    A mean's error is the largest of three: by the errors of its points, by how these vary, and by how neighbours
    differ in all of them, whose median |N(0, 2 s^2)| is 0.954 s.
    """
    found, open_ = list[Break](), [list(points)]
    while open_:
        part = open_.pop()
        if (split := _find_split(figure, part, least, is_share, least_z)) is not None:
            place, one = split
            found.append(one)
            open_ += [part[:place], part[place:]]
    return _relevel(sorted(found, key=lambda one: one.step), points) if found else []


def _find_split(
    figure: str, points: Sequence[Point], least: float, is_share: bool, least_z: float
) -> tuple[int, Break] | None:
    """Where two levels differ most, in standard errors; one step alone at the end is no level."""
    num = len(points)
    if num < 4:
        return None
    jitter = (median_high(abs(later.value - earlier.value) for earlier, later in pairwise(points)) / 0.954) ** 2
    sums = [
        list(accumulate(values, initial=0.0)) for values in zip(*((v, v * v, e * e) for _, v, e in points), strict=True)
    ]
    best: tuple[int, Break] | None = None
    for place in range(1, num - 1):
        levels, errors = [], []
        for low, high in ((0, place), (place, num)):
            size = high - low
            total, squares, own = (each[high] - each[low] for each in sums)
            mean = total / size
            spread = (squares - size * mean * mean) / (size - 1) if size > 1 else 0.0
            levels.append(mean)
            errors.append(math.sqrt(max(own / size, spread, jitter) / size))
        difference = abs(levels[1] - levels[0])
        bound = least if is_share else least * max(map(abs, levels))
        z = difference / max(math.hypot(*errors), 1e-9)
        if difference >= bound and z >= least_z and (best is None or z > best[1].z):
            best = place, Break(figure, points[place].step, levels[0], levels[1], z)
    return best


def _relevel(found: Sequence[Break], points: Sequence[Point]) -> list[Break]:
    """The breaks with the levels between neighbours, which are narrower than those they were found by."""
    ends = [-math.inf, *(one.step for one in found), math.inf]
    levels = [fmean(point.value for point in points if low <= point.step < high) for low, high in pairwise(ends)]
    return [
        Break(one.figure, one.step, before, after, one.z)
        for one, before, after in zip(found, levels, levels[1:], strict=False)
    ]


def _tool_figures(tool: str) -> tuple[Figure, ...]:
    return (
        Figure(f"failed calls of {tool}", _failed(tool), 0.2),
        Figure(f"length of results of {tool}", _length(tool), 0.3, is_share=False),
    )


def _failed(tool: str) -> Callable[[StoredTrajectory], float | None]:
    def value(item: StoredTrajectory) -> float | None:
        outcomes = [one.result.outcome for one in ran(item, tool) if not one.result.outcome.is_invalid_call]
        return fmean(outcome != "ok" for outcome in outcomes) if outcomes else None

    return value


def _length(tool: str) -> Callable[[StoredTrajectory], float | None]:
    def value(item: StoredTrajectory) -> float | None:
        sizes = [len(one.result.text) for one in ran(item, tool) if one.result.outcome == "ok"]
        return fmean(sizes) if sizes else None

    return value


def latency_points(items: Sequence[StoredTrajectory], tool: str) -> list[Point]:
    """The median time of a tool's calls, step by step; no call from a cache."""
    times: dict[int, list[float]] = defaultdict(list)
    for item in items:
        times[item.summary.step] += [one.result.run_s for one in ran(item, tool) if not one.result.cached]
    return [Point(step, median(each), 0.0) for step, each in times.items() if each]


def read_breaks(items: Sequence[StoredTrajectory], steps: Sequence[TrainingStep]) -> dict[str, list[Break]]:
    """The breaks of everything that is looked at, by figure, of figures that have any."""
    tools = sorted({one.call.name for item in items for one in ran(item)})
    found = {
        one.name: find_breaks(one.name, points_of(items, one), one.least, is_share=one.is_share)
        for one in (*BEHAVIOUR, *(figure for tool in tools for figure in _tool_figures(tool)))
    }
    for tool in tools:
        name = f"seconds a call of {tool}"
        found[name] = find_breaks(name, latency_points(items, tool), 0.75, is_share=False)
    for name, least in METRICS.items():
        values = [Point(each.step, each.metrics[name], 0.0) for each in steps if name in each.metrics]
        found[name] = find_breaks(name, values, least, is_share=False)
    return {name: breaks for name, breaks in found.items() if breaks}


def fall_of(breaks: Mapping[str, Sequence[Break]], points: Sequence[Point], *, is_worse: bool) -> Break | None:
    """The largest fall of success, where the run ends below what was before it.

    Args:
        points: success, step by step.
        is_worse: whether held-out success is known to have fallen: only the step is looked for then.
    """
    found = breaks.get(SUCCESS.name, ())
    falls = [one for one in found if one.after < one.before and points[-1].value < one.before - SUCCESS.least]
    if is_worse and not falls:
        found = find_breaks(SUCCESS.name, points, SUCCESS.least, least_z=_KNOWN_Z)
        falls = [one for one in found if one.after < one.before]
    return max(falls, key=lambda one: one.before - one.after, default=None)
