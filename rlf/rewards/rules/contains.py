"""`rule: contains`: one of the golds occurs in the answer."""

from __future__ import annotations

from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, holds
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class Contains(Rule):
    """1 if the words of a gold stand in the answer one after the other, once both are normalised, else 0.

    Whole words, unlike Search-R1's `subem_check`, for which "art" is in "party".
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": "Paris", "answer": "It is Paris, France."})

    rule: Literal["contains"] = "contains"
    normalize: Normalization = Normalization.TEXT

    def judge(self, trajectory: Trajectory) -> Verdict:
        if trajectory.answer is None:
            return Verdict(0.0, "no answer")
        answers = golds(trajectory.task.answer)
        if any(holds(trajectory.answer, gold, self.normalize) for gold in answers):
            return Verdict(1.0, "found")
        return Verdict(0.0, f"{trajectory.answer[:80]!r} holds none of {', '.join(map(repr, answers))}")
