"""Usage of the judges of a run, from the metrics of its steps and evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlf.lineage.records import Evaluation, Step
from rlf.reports.quantities import count, decimal, dollars, percent, visible


@dataclass(frozen=True, slots=True)
class JudgeTotals:
    """One term's judges, over training and evaluations."""

    term: str
    num_tokens: float
    """Prompt and completion; of replies from the cache none."""
    cost_usd: float
    tokens_per_step: float | None
    """Mean over the steps; None before the first."""
    cost_usd_per_step: float | None
    cached: float | None
    """Share of the replies that were given before, mean over steps; None where no judge was asked."""
    kappa: float | None
    """Of judge and sentinels, the latest; None where there is none."""


def judge_totals(steps: Sequence[Step], evaluations: Sequence[Evaluation]) -> list[JudgeTotals]:
    """A row for each term that asked a judge."""
    trained = [step.metrics for step in steps]
    every = [*trained, *(evaluation.metrics for evaluation in evaluations)]
    terms = dict.fromkeys(
        name.split("/")[1]
        for metrics in every
        for name in metrics
        if name.startswith("rewards/") and name.endswith("/cost_usd")
    )
    found = []
    for term in terms:
        tokens, cost, cached, kappa = (f"rewards/{term}/{name}" for name in ("tokens", "cost_usd", "cached", "kappa"))
        kappas = [metrics[kappa] for metrics in trained if kappa in metrics]
        found.append(
            JudgeTotals(
                term,
                sum(metrics.get(tokens, 0.0) for metrics in every),
                sum(metrics.get(cost, 0.0) for metrics in every),
                _mean_or_none(metrics.get(tokens, 0.0) for metrics in trained),
                _mean_or_none(metrics.get(cost, 0.0) for metrics in trained),
                _mean_or_none(metrics[cached] for metrics in trained if cached in metrics),
                kappas[-1] if kappas else None,
            )
        )
    return found


COLUMNS = ("judge", "tokens", "cost", "tokens a step", "cost a step", "cached", "kappa")


def judge_rows(judges: Sequence[JudgeTotals]) -> Iterator[tuple[str, ...]]:
    """The totals for people, by `COLUMNS`."""
    for judge in judges:
        yield (
            visible(judge.term),
            count(judge.num_tokens),
            dollars(judge.cost_usd),
            count(judge.tokens_per_step),
            dollars(judge.cost_usd_per_step),
            percent(judge.cached),
            decimal(judge.kappa),
        )


def _mean_or_none(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None
