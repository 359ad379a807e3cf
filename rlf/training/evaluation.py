"""The metrics of one evaluation, whichever engine made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from rlf.reports.statistics import pass_at_k, wilson_interval
from rlf.rollout.metrics import rollout_metrics
from rlf.types.score import Scored


def evaluation_metrics(scored: Sequence[Scored], num_samples: int) -> dict[str, float]:
    """Success with its 95 % interval, by kind, pass@k, and what `rollout_metrics` says.

    The interval is Wilson's over questions; with several samples per question each counts by its share of successes.
    """
    rates: dict[str, float] = {}
    kinds: dict[str, str | None] = {}
    solved: dict[str, int] = {}
    by_task = _successes_by_task(scored)
    for item in scored:
        kinds[item.trajectory.task.id] = item.trajectory.task.kind
    for task_id, successes in by_task.items():
        rates[task_id] = fmean(successes)
        solved[task_id] = sum(success >= 1.0 for success in successes)
    metrics = (rollout_metrics(scored) if scored else {}) | {"num_questions": float(len(rates))}
    if not rates:
        return metrics
    interval = wilson_interval(sum(rates.values()), len(rates))
    metrics |= {"success": fmean(rates.values()), "success/low": interval.low, "success/high": interval.high}
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for task_id, rate in rates.items():
        kind = kinds[task_id]
        if kind is not None:
            by_kind[kind].append(rate)
    metrics |= {f"success/{kind}": fmean(values) for kind, values in sorted(by_kind.items())}
    if num_samples > 1:
        complete = [pass_at_k(len(by_task[t]), solved[t], num_samples) for t in rates if len(by_task[t]) == num_samples]
        if complete:
            metrics[f"pass@{num_samples}"] = fmean(complete)
    return metrics


def _successes_by_task(scored: Sequence[Scored]) -> dict[str, list[float]]:
    successes: defaultdict[str, list[float]] = defaultdict(list)
    for item in scored:
        if item.reward is not None and item.success is not None:
            successes[item.trajectory.task.id].append(min(1.0, max(0.0, item.success)))
    return successes
