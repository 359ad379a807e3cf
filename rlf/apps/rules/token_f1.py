"""`rule: token_f1`: the share of words that answer and gold have in common."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

from rlf.rewards.answers import same
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, has_words, normalize
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class TokenF1(Rule):
    """F1 = 2 P R / (P + R) over normalised words, the best of the golds (SQuAD, arXiv:1606.05250, section 6.1)."""

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": "New York", "answer": "new york"})

    rule: Literal["token_f1"] = "token_f1"
    normalize: Normalization = Normalization.TEXT

    def judge(self, trajectory: Trajectory) -> Verdict:
        if trajectory.answer is None:
            return Verdict(0.0, "no answer")
        answers = golds(trajectory.task.answer)
        value, gold = max((token_f1(trajectory.answer, gold, self.normalize), gold) for gold in answers)
        return Verdict(value, f"closest to {gold!r}")


def token_f1(answer: str, gold: str, by: Normalization = Normalization.TEXT) -> float:
    """F1 of two texts; words count as often as they occur in both. 1 or 0 where the gold has no words."""
    answer_words, gold_words = normalize(answer, by).split(), normalize(gold, by).split()
    if not has_words(" ".join(gold_words)):
        return float(same(answer, gold, by))
    common = (Counter(answer_words) & Counter(gold_words)).total()
    return 2 * common / (len(answer_words) + len(gold_words))
