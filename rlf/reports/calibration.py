"""A judge compared with people's labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rlf.reports.agreement import (
    PositionBias,
    accuracy,
    kappa,
    length_bias,
    position_bias,
    self_preference,
    spearman,
)
from rlf.reports.statistics import Estimate
from rlf.rewards.judging.calibrating import Judged
from rlf.rewards.judging.settings import Compare
from rlf.rewards.kinds.judge import JudgeTerm


@dataclass(frozen=True, slots=True)
class Calibration:
    """Agreement and bias of a judge."""

    term: str
    num_items: int
    failures: Sequence[str]
    """Why items have no verdict; the numbers below are over the others."""
    accuracy: Estimate
    """Of verdicts on the same side of the threshold; of pairs, of the same winner. No number for groups."""
    kappa: Estimate
    spearman: float | None
    """Of values and labels."""
    length_bias: float | None
    position_bias: PositionBias | None
    """Of pairs."""
    self_preference: Estimate
    num_own: int
    """Items that the judge's model wrote."""
    cost_usd: float
    """Mean for one item."""
    num_tokens: float
    elapsed_s: float


def compare_with_labels(term: JudgeTerm, judged: Sequence[Judged], threshold: float) -> Calibration:
    """Compares a judge's verdicts with labels; at least one item has a verdict."""
    scored = [each for each in judged if each.judgement.value is not None]
    values = [each.judgement.value or 0.0 for each in scored]
    labels = [each.item.label for each in scored]
    judged_as, labelled_as = ([_class_of(term, each, threshold) for each in side] for side in (values, labels))
    classes = list(zip(judged_as, labelled_as, strict=True))
    lengths = [len(each.item.trajectory.answer or "") for each in scored]
    residuals = {True: list[float](), False: list[float]()}
    for each, value, label in zip(scored, values, labels, strict=True):
        if each.item.author is not None:
            residuals[each.item.author in term.judges].append(value - label)
    return Calibration(
        term=term.name,
        num_items=len(judged),
        failures=[each.judgement.reason for each in judged if each.judgement.value is None],
        accuracy=Estimate(None, None) if term.compares_groups else accuracy(classes),
        kappa=Estimate(None, None) if term.compares_groups else kappa(classes),
        spearman=spearman(values, labels),
        length_bias=length_bias(values, lengths, labels),
        position_bias=position_bias([each.orders for each in scored if each.orders is not None]),
        self_preference=self_preference(residuals[True], residuals[False]),
        num_own=len(residuals[True]),
        cost_usd=fmean(each.judgement.usage.cost_usd for each in judged),
        num_tokens=fmean(each.judgement.usage.num_tokens for each in judged),
        elapsed_s=fmean(each.elapsed_s for each in judged),
    )


def _class_of(term: JudgeTerm, value: float, threshold: float) -> str:
    if term.compare is Compare.PAIRWISE:
        return "tie" if value == 0.5 else "first" if value > 0.5 else "second"
    return "good" if value >= threshold else "bad"
