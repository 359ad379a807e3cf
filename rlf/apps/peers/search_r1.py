"""`rule: search_r1`: the reward of Search-R1."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rlf.rewards.answers import same
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, shown
from rlf.rewards.term import KnownSample, Verdict
from rlf.rewards.values import shows
from rlf.types import Trajectory


class SearchR1(Rule):
    """1 for a right answer, else 0 (arXiv:2503.09516, equation 4); with scores for form and retrieval on request.

    Those are of the released `qa_em_format.py` (arXiv:2505.15117), which trains with structure 0.2, answer 0.1 and
    retrieval 0: a right answer has 1, or 1 - structure where the form is wrong; a wrong one has structure in right
    form, + retrieval if a tool's result holds a gold, and `answer` in wrong form; no answer has 0.

    Departures: the form is right if nothing in any turn failed to parse, in whatever chat format, where the original
    looks for its own tags; a gold is held by a result as whole words, where the original finds "art" in "party"; what
    a failed call returns, a call's own arguments hold, or an earlier call named before a result held it, is no
    retrieval.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": ["Paris"], "answer": "the Paris."})

    rule: Literal["search_r1"] = "search_r1"
    normalize: Normalization = Normalization.SQUAD
    structure_score: float = Field(default=0.0, ge=0, le=1)
    """The original's `structure_format_score`."""
    answer_score: float = Field(default=0.0, ge=0, le=1)
    """The original's `final_format_score`."""
    retrieval_score: float = Field(default=0.0, ge=0, le=1)
    """The original's `retrieval_score`."""

    @property
    def bounds(self) -> tuple[float, float]:
        """From 0 to 1, or to what structure and retrieval add up to."""
        return (0.0, max(1.0, self.structure_score + self.retrieval_score))

    def judge(self, trajectory: Trajectory) -> Verdict:
        if trajectory.answer is None:
            return Verdict(0.0, "no answer")
        answers = golds(trajectory.task.answer)
        in_form = not trajectory.failures
        if any(same(trajectory.answer, gold, self.normalize) for gold in answers):
            return Verdict(1.0, "right") if in_form else Verdict(1 - self.structure_score, "right, in wrong form")
        reason = f"got {trajectory.answer[:80]!r}; expected {shown(answers)}"
        if not in_form:
            return Verdict(self.answer_score, reason)
        found = self.retrieval_score > 0 and any(
            shows(trajectory, record, gold, self.normalize) for record in trajectory.calls for gold in answers
        )
        return Verdict(self.structure_score + self.retrieval_score * found, reason)
