"""The plans of runs: their values by key, where two differ, and what each value of a key came to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import select

from rlf.apps.web.run_views import run_title
from rlf.core.errors import RlfError
from rlf.core.registry import nearest
from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import EVALUATION, HIDDEN, SWEEP, Run, TrainingStep
from rlf.reports.pages.chart import MAIN, ArmCurve, Chart, further_curves, main_curves
from rlf.runs.planning import leaves

_MAX_RUNS = 200
"""Newest runs of a spec that are compared."""
_MAX_PLANS = 1_000
"""Plans whose values are kept, by their text."""
_NOT_TRAINED = frozenset({EVALUATION, SWEEP})
_FREE = frozenset({"seed", "name"})
"""Keys that two runs may differ in, and still be taken for a pair of another key."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A key whose values differ; None where a plan has no such key."""

    key: str
    before: Any
    now: Any


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Runs with one value of a key."""

    value: Any
    runs: tuple[str, ...]
    """Ids, newest first."""
    success: float | None
    """Mean of their latest held-out success; None where none was evaluated."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Two runs that differ in one key, seeds aside."""

    before: str
    """A run's id."""
    now: str
    value_before: Any
    value_now: Any
    success_before: float
    success_now: float


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Results of a spec's runs with other values of a key."""

    spec: str
    key: str
    values: tuple[KeyValue, ...]
    pairs: tuple[KeyPair, ...]
    """Runs that differ in nothing else; without any, what the values show may have other causes."""


def plan_leaves(run: Run) -> dict[str, Any]:
    """The values of a run's plan by key."""
    return leaves(run.record.plan.get("spec", {}))


@dataclass(frozen=True, slots=True)
class PlanValues:
    """The values of a plan by key, and each as text, for values are compared and some cannot be hashed."""

    values: dict[str, Any]
    texts: dict[str, str]
    items: frozenset[tuple[str, str]]
    """The texts of what is set."""


@lru_cache(_MAX_PLANS)
def _read_leaves(plan: str) -> PlanValues:
    values = leaves(json.loads(plan).get("spec", {}))
    texts = {key: repr(value) for key, value in values.items()}
    return PlanValues(values, texts, frozenset((key, texts[key]) for key, value in values.items() if value is not None))


def find_plan_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[PlanChange, ...]:
    """Keys whose values differ, in the order of the first plan."""
    keys = dict.fromkeys([*before, *now])
    return tuple(PlanChange(key, before.get(key), now.get(key)) for key in keys if before.get(key) != now.get(key))


def last_run(runs_folder: Path, spec: str) -> Run | None:
    """The newest run of a spec in a folder."""
    from rlf.runs.place import open_reader  # loads the database's library

    if not (runs_folder / "rlf.db").is_file():
        return None
    with open_reader(runs_folder) as reader:
        return next(iter(reader.list_runs(_find_runs(reader, spec, 1))), None)


def varied_keys(plans: Mapping[str, PlanValues]) -> dict[str, int]:
    """Keys that runs have several values of, with the number of these."""
    seen: dict[str, set[str]] = {}
    for plan in plans.values():
        for key, text in plan.texts.items():
            seen.setdefault(key, set()).add(text)
    return {key: len(values) for key, values in seen.items() if len(values) > 1}


def read_key(reader: Reader, plans: Mapping[str, PlanValues], spec: str, key: str) -> KeyRuns:
    """The results of a key's values. Raises RlfError if no run of the spec has the key."""
    known = list(dict.fromkeys(name for plan in plans.values() for name in plan.values))
    if key not in known:
        raise RlfError(f"key: got {key[:80]!r}; no run of {spec[:80]!r} has it{nearest(key, known) or '.'}")
    found = reader.latest_evaluations(list(plans))
    success = {run_id: one.metrics["success"] for run_id, one in found.items() if "success" in one.metrics}
    by_value: dict[str, list[str]] = {}
    for run_id, plan in plans.items():
        by_value.setdefault(plan.texts.get(key, ""), []).append(run_id)
    values = list[KeyValue]()
    for ids in by_value.values():
        known_success = [success[one] for one in ids if one in success]
        mean = fmean(known_success) if known_success else None
        values.append(KeyValue(plans[ids[0]].values.get(key), tuple(ids), mean))
    return KeyRuns(spec, key, tuple(values), tuple(_find_pairs(plans, success, key)))


def _find_pairs(plans: Mapping[str, PlanValues], success: Mapping[str, float], key: str) -> list[KeyPair]:
    """Each run beside the newest earlier one that differs in this key alone."""
    alike: dict[frozenset[tuple[str, str]], list[str]] = {}
    pairs = list[KeyPair]()
    for now in reversed([one for one in plans if one in success]):
        plan = plans[now]
        others = alike.setdefault(plan.items - {(free, plan.texts.get(free, "")) for free in (key, *_FREE)}, [])
        before = next((one for one in reversed(others) if plans[one].values.get(key) != plan.values.get(key)), None)
        if before is not None:
            values = plans[before].values.get(key), plan.values.get(key)
            pairs.append(KeyPair(before, now, *values, success[before], success[now]))
        others.append(now)
    return pairs[::-1]


def _find_runs(reader: Reader, spec: str, limit: int) -> list[str]:
    ids = [line.id for line in reader.run_lines(name=spec) if line.engine not in _NOT_TRAINED]
    return ids[:limit]


def read_plans(reader: Reader, spec: str) -> dict[str, PlanValues]:
    """The newest runs of a spec with their plans, newest first."""
    return parse_plans(reader, _find_runs(reader, spec, _MAX_RUNS))


def parse_plans(reader: Reader, ids: Sequence[str]) -> dict[str, PlanValues]:
    """The plans of runs by id, in their order."""
    columns = tables.runs.c
    query = select(columns.id, columns.plan).where(columns.status.not_in(HIDDEN), columns.id.in_(ids))
    with reader.store.read() as connection:
        texts = {row.id: row.plan for row in connection.execute(query)}
    return {run_id: _read_leaves(texts[run_id]) for run_id in ids if run_id in texts}


MAX_RUNS, MAX_ARMS = 64, 16
_MAX_POINTS = 2000
"""Of the chart at full size."""
_HELD_OUT = "held-out/"
_MAX_KEYS = 3
"""Values that a run is named by."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of each chart: a run, or the runs of a group, of which it shows the mean."""

    name: str
    run_ids: tuple[str, ...]
    steps: tuple[int, ...]
    """That all of its runs have."""
    time: tuple[float, ...]
    """Seconds from the run's start to the end of each step; of several runs the mean."""
    tokens: tuple[float, ...]
    """Of all trajectories up to each step."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Charts of several arms."""

    arms: tuple[ChartLine, ...]
    names: tuple[str, ...]
    """Metrics to choose from."""
    keys: tuple[str, ...]
    """By which the runs can be grouped."""
    chart: Chart | None
    """At full size; None where no arm has the metric."""
    others: tuple[Chart, ...]
    """The metrics that matter, small."""


def read_overlay(reader: Reader, names: Sequence[str], metric: str, group: str) -> Overlay:
    """Reads the curves of runs.

    Args:
        metric: at full size; empty for the first one that matters.
        group: a key of the plans whose values are the arms, or `name`; empty: each run is one.

    Raises:
        RlfError: there are too many, or a run is not there.
    """
    runs = list({run.record.id: run for run in map(reader.get_run, names)}.values())
    if len(runs) > MAX_RUNS:
        raise RlfError(f"got {len(runs)} runs; curves of {MAX_RUNS} can be shown. Choose fewer.")
    plans = parse_plans(reader, [run.record.id for run in runs])
    varied, tags = varied_keys(plans), reader.tags()
    keys = tuple(sorted(varied, key=lambda key: (varied[key], key)))  # those with the fewest values first
    by_arm: dict[str, list[Run]] = {}
    for run in runs:
        by_arm.setdefault(_arm_name(run, plans, keys, group, tags.get(run.record.id, ())), []).append(run)
    if len(by_arm) > MAX_ARMS:
        raise RlfError(f"got {len(by_arm)} curves; {MAX_ARMS} can be distinguished. Choose fewer runs, or group them.")
    steps = {run.record.id: reader.steps(run.record.id) for run in runs}
    curves = [
        ArmCurve(name, [steps[run.record.id] for run in of], [reader.evaluations(run.record.id) for run in of])
        for name, of in by_arm.items()
    ]
    modes = {f"{_HELD_OUT}{one.mode}" for course in curves for run in course.evaluations for one in run}
    of_steps = {name for course in curves for run in course.steps for step in run for name in step.metrics}
    first = [*sorted(modes, reverse=True), *(name for name in ("success", *MAIN) if name in of_steps)]
    known = (*first, *sorted(of_steps - set(first)))
    wanted = metric if metric in known else next(iter(known), "")
    whole = _charts_of([replace(course, max_points=_MAX_POINTS) for course in curves], {wanted})
    mattering = {name for name in known if name in MAIN or name == "success" or name.startswith(_HELD_OUT)}
    arms = tuple(_read_arm(reader, name, of, steps) for name, of in by_arm.items())
    shown = tuple(_charts_of(curves, mattering - {wanted}))
    return Overlay(arms, known, ("name", *keys), whole[0] if whole else None, shown)


def _arm_name(run: Run, plans: Mapping[str, PlanValues], keys: Sequence[str], group: str, tags: Sequence[str]) -> str:
    name = run_title(run.record.name, tags)
    values: Mapping[str, Any] = plans[run.record.id].values if run.record.id in plans else {}
    if group:
        return name if group == "name" else f"{group}={values.get(group)}"
    telling = " ".join(f"{key.rpartition('.')[2]}={values.get(key)}" for key in keys[:_MAX_KEYS])
    return " ".join(filter(None, (name, telling[:60], run.record.id[-4:])))


def _charts_of(curves: Sequence[ArmCurve], wanted: set[str]) -> list[Chart]:
    def kept(step: TrainingStep) -> TrainingStep:
        return replace(step, metrics={name: value for name, value in step.metrics.items() if name in wanted})

    chosen = [
        replace(
            course,
            steps=[[kept(step) for step in run] for run in course.steps],
            evaluations=[[one for one in run if f"{_HELD_OUT}{one.mode}" in wanted] for run in course.evaluations],
        )
        for course in curves
    ]
    return [*main_curves(chosen), *further_curves(chosen)]


def _read_arm(reader: Reader, name: str, runs: Sequence[Run], steps: Mapping[str, Sequence[TrainingStep]]) -> ChartLine:
    moments = [read_moments(reader, run, steps[run.record.id]) for run in runs]
    shared = sorted(set.intersection(*(set(one) for one in moments)))
    means = [[fmean(one[step][place] for one in moments) for step in shared] for place in (0, 1)]
    return ChartLine(name, tuple(run.record.id for run in runs), tuple(shared), tuple(means[0]), tuple(means[1]))


def read_moments(reader: Reader, run: Run, steps: Sequence[TrainingStep]) -> dict[int, tuple[float, float]]:
    """By step its end in seconds from the run's start, and the tokens of all trajectories so far."""
    totals = reader.step_totals(run.record.id)
    tokens = dict(zip((one.step for one in totals), accumulate(one.num_tokens for one in totals), strict=True))
    found, so_far = dict[int, tuple[float, float]](), 0
    for step in steps:
        so_far = tokens.get(step.step, so_far)
        found[step.step] = (max(0.0, step.finished - run.record.started), float(so_far))
    return found
