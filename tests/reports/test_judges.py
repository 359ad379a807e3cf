"""What judges took, summed up."""

from __future__ import annotations

from dataclasses import replace

from rlf.lineage.records import Evaluation, TrainingStep
from rlf.reports.comparison import compare_arms
from rlf.reports.comparison_views import sheets
from rlf.reports.report import JudgeTotals, judge_totals

from .test_compare import arm, member, questions


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


def test_arms_are_compared_by_what_their_judges_took_in_the_mean_run() -> None:
    judged = replace(member(questions(2, 2)), steps=STEPS, evaluations=EVALUATIONS)
    cheaper = replace(judged, evaluations=[])
    found = compare_arms([arm("A", judged, cheaper), arm("B", member(questions(2, 2)))])
    (sheet,) = [sheet for sheet in sheets(found).results if sheet.title == "judges"]
    assert sheet.rows == (("good: tokens", "900", "–"), ("good: cost", "$1.750", "–"))
