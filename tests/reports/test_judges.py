"""What judges took, summed up."""

from __future__ import annotations

from rlf.lineage.records import Evaluation, TrainingStep
from rlf.reports.report import JudgeTotals, judge_totals


def took(tokens: float, cost_usd: float, **more: float) -> dict[str, float]:
    names = {"tokens": tokens, "cost_usd": cost_usd, **more}
    return {f"rewards/good/{name}": value for name, value in names.items()} | {"rewards/exact/mean": 1.0}


STEPS = [TrainingStep(1, took(300, 0.5, cached=0.0), 0.0), TrainingStep(2, took(100, 0.25, cached=0.5, kappa=0.8), 0.0)]
EVALUATIONS = [Evaluation(0, "greedy", took(1000, 2.0), 0.0)]


def test_tokens_and_cost_are_summed_over_steps_and_evaluations() -> None:
    """1400 = 300 + 100 + 1000; a step takes (300 + 100) / 2; the kappa is that of the last step."""
    assert judge_totals(STEPS, EVALUATIONS) == [JudgeTotals("good", 1400.0, 2.75, 200.0, 0.375, 0.25, 0.8)]


def test_a_run_without_judges_has_no_row() -> None:
    assert judge_totals([TrainingStep(1, {"rewards/exact/mean": 1.0, "tokens/total": 9.0}, 0.0)], []) == []
