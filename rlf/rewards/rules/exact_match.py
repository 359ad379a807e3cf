"""`rule: exact_match`: the answer is one of the golds."""

from __future__ import annotations

from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, same, shown
from rlf.rewards.term import Sample, Verdict
from rlf.types import Trajectory


class ExactMatch(Rule):
    """1 for an answer that is a gold once both are normalised, else 0 (Search-R1, arXiv:2503.09516, equation 4)."""

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[Sample] = Sample(gold={"gold": "Paris", "answer": "the Paris."})

    rule: Literal["exact_match"] = "exact_match"
    normalize: Normalization = Normalization.TEXT

    def judge(self, trajectory: Trajectory) -> Verdict:
        if trajectory.answer is None:
            return Verdict(0.0, "no answer")
        answers = golds(trajectory.task.answer)
        if any(same(trajectory.answer, gold, self.normalize) for gold in answers):
            return Verdict(1.0, "right")
        return Verdict(0.0, f"got {trajectory.answer[:80]!r}; expected {shown(answers)}")
