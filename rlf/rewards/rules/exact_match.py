"""`rule: exact_match`: the answer is one of the golds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, shown
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory

if TYPE_CHECKING:
    from rlf.rewards.answers import Answer


class ExactMatch(Rule):
    """1 for an answer that is a gold once both are normalised, else 0 (Search-R1, arXiv:2503.09516, equation 4).

    By `normalize: text` an answer may also be the same number ("1,000", "1e3", "one thousand"), with the same unit or
    another of its dimension ("50 %" and "0.5", "20 °C" and "68 °F", "1 km" and "1000 m"; "$5" is not "5"), or the same
    date ("2024-03-01", "March 1, 2024"; "01/03/2024" may be two, and is text). Numbers with zeros in front are codes.
    Only the result counts: what follows a last "the answer is", or stands in a last \\boxed{} or <answer>.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": "Paris", "answer": "the Paris."})

    rule: Literal["exact_match"] = "exact_match"
    normalize: Normalization = Normalization.TEXT

    def judge(self, trajectory: Trajectory) -> Verdict:
        from rlf.rewards.answers import result_of, same  # which a check of remembered data does without

        if trajectory.answer is None:
            return Verdict(0.0, "no answer")
        answers = golds(trajectory.task.answer)
        right = any(same(trajectory.answer, gold, self.normalize) for gold in answers)
        if not right and self.normalize is Normalization.TEXT:
            result = result_of(trajectory.answer)
            right = any(same(result, gold, self.normalize) for gold in answers)
        if right:
            return Verdict(1.0, "right")
        return Verdict(0.0, f"got {trajectory.answer[:80]!r}; expected {shown(answers)}")

    def read_gold(self, gold: str) -> Answer:
        from rlf.rewards.answers import read_answer_text

        found = super().read_gold(gold)
        return found if found.fault or self.normalize is Normalization.SQUAD else read_answer_text(gold)
