"""`rlf bench robust`: a run's own tasks under each disturbance of its tools and world, as evaluations of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import rlf
from rlf.apps.bench.kind import read_names
from rlf.apps.bench.run import TrialOptions
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.reports.evaluations import EvaluationRow
from rlf.reports.sheets import points, points_range, rate
from rlf.reports.statistics import Interval
from rlf.runs.targets import endpoint_of, open_target

UNDISTURBED = "undisturbed"
CLASSES: Mapping[str, Mapping[str, float]] = {
    "latency": {"latency_s": 0.2, "timeouts": 0.2},
    "errors": {"errors": 0.3},
    "truncated": {"truncated": 1.0},
    "noisy": {"noisy": 1.0},
    "renamed": {"renamed": 1.0},
    "schemas": {"nested": 1.0},
}
"""`eval.faults` of each class."""


@dataclass(frozen=True, slots=True)
class RobustRow(Jsonable):
    """One model under one class of disturbance, or under none."""

    target: str
    disturbance: str
    run_id: str
    """Its evaluation."""
    mode: str
    num_questions: int
    num_failed: int
    success: float | None
    low: float | None
    high: float | None
    difference: float | None
    """Of success from the undisturbed, on the same questions."""
    difference_low: float | None
    """Of its interval, whose level is Holm's for all classes of the model."""
    difference_high: float | None
    num_calls: float
    cost_usd: float


def robust(
    targets: Sequence[str], files: Sequence[Path], overrides: Sequence[str], classes: str | None, asked: TrialOptions
) -> list[RobustRow]:
    """Tries models undisturbed, then under each class of disturbance.

    Args:
        files: the spec that they are tried by; none: that of their run.
        classes: with commas; None: all.

    Raises:
        RlfError, SpecError: a target is no model, or has nothing that could be disturbed.
        KeyboardInterrupt: it was stopped; the same call continues it.
    """
    chosen = list(CLASSES) if classes is None else read_names(classes, list(CLASSES), {}, "class")
    served = endpoint_of(asked.endpoint, asked.model, asked.api_key_env, asked.timeout_s)
    found: list[RobustRow] = []
    for name in [*targets, *([None] if served is not None else [])]:
        only = asked if name is None else replace(asked, endpoint=None, model=None, api_key_env=None)
        endpoint = served if name is None else None
        with open_target(name, files, overrides, runs_folder=asked.runs_folder, endpoint=endpoint) as target:
            plan, shown = target.plan, target.name
        if plan is None:
            raise RlfError(f"{shown}: has no tasks of its own. Name a spec, e.g. `rlf bench robust {shown} SPEC.yaml`.")
        if not plan.spec.tools and plan.spec.env is None:
            raise RlfError(f"{shown}: its spec has neither tools nor a world that could be disturbed.")
        changes = {UNDISTURBED: "eval.faults=null"}
        changes |= {each: f"eval.faults={json.dumps(CLASSES[each])}" for each in chosen}
        rows: dict[str, EvaluationRow] = {}
        for each, change in changes.items():
            (rows[each],) = only.evaluate([] if name is None else [name], files, [*overrides, change])
        found += _compare(shown, rows, asked.runs_folder)
    return found


def _compare(target: str, rows: Mapping[str, EvaluationRow], runs_folder: Path) -> list[RobustRow]:
    """The rows of a model, each beside the first."""
    runs = [row.run_id for row in rows.values()]
    contrasts = rlf.compare(*runs, runs_folder=runs_folder).contrasts if len(runs) > 1 else ()
    found = []
    for (name, row), contrast in zip(rows.items(), [None, *contrasts], strict=True):
        low, high = (None, None) if contrast is None or contrast.interval is None else contrast.interval
        difference = None if contrast is None else contrast.difference
        counts, success = (row.num_questions, row.num_failed), (row.success, row.low, row.high)
        beside, spent = (difference, low, high), (row.num_calls, row.cost_usd)
        found.append(RobustRow(target, name, row.run_id, row.mode, *counts, *success, *beside, *spent))
    return found


def robust_table(rows: Sequence[RobustRow]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the table: a line for each model and disturbance."""
    heads = ["model", "disturbance", "success (95 %)", "beside undisturbed", "tasks", "broken", "calls", "US$"]
    return heads, [_cells_of(row) for row in rows]


def _cells_of(row: RobustRow) -> list[str]:
    interval = None if row.low is None or row.high is None else Interval(row.low, row.high)
    beside = "-" if row.difference is None else points(row.difference)
    if row.difference_low is not None and row.difference_high is not None:
        beside += f" ({points_range(row.difference_low, row.difference_high)})"
    counts = [f"{row.num_questions:,}", f"{row.num_failed:,}", f"{row.num_calls:.2f}", f"{row.cost_usd:.2f}"]
    return [row.target, row.disturbance, rate(row.success, interval), beside, *counts]
