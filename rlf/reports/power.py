"""The power of a comparison on held-out questions, before its outcome is known: the smallest difference it finds."""

from __future__ import annotations

from dataclasses import dataclass

from rlf.reports.evidence import ALPHA
from rlf.reports.paired import detectable_difference
from rlf.reports.quantities import points

_CHANCE = 0.8
_SHARE_LOST = 0.05
"""Questions that a better run fails although the other one solves them; two runs of one spec differ by as much."""


@dataclass(frozen=True, slots=True)
class Power:
    """The smallest differences that the exact test finds with a chance of 80 %: one run a side, success 0 or 1."""

    num_questions: int
    num_compared: int
    """Arms that are compared with the baseline."""
    no_losses: float | None
    """Where every question that changes is gained; None where no difference is large enough."""
    few_losses: float | None
    """Where 5 % of the questions are lost beside those that are gained."""


def power_of(num_questions: int, num_compared: int = 1) -> Power:
    """The power of a comparison by its size."""
    sizes = [detectable_difference(num_questions, lost, ALPHA / num_compared, _CHANCE) for lost in (0.0, _SHARE_LOST)]
    return Power(num_questions, num_compared, *sizes)


def power_words(power: Power) -> str:
    """The power in a sentence."""
    size = f"{power.num_questions:,} questions"
    if power.num_compared > 1:
        size += f" and {power.num_compared} arms against the first"
    if power.no_losses is None:
        return f"{size} are too few to show any difference with 80 % power."
    words = f"{size} show a difference of {points(power.no_losses)} with 80 % power if no question is lost"
    if power.few_losses is None:
        return f"{words}, and none if 5 % are lost."
    return f"{words}, and of {points(power.few_losses)} if 5 % are lost."
