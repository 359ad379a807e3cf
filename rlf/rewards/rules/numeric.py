"""`rule: numeric`: the last number of the answer equals a gold's, within a tolerance."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds, last_number
from rlf.rewards.term import Sample, Verdict
from rlf.types import Trajectory


class Numeric(Rule):
    """1 if |answer - gold| <= tolerance * max(1, |gold|) for one of the golds, else 0.

    The last number of a text counts, with its sign: digits in groups of three (1,000,000; 1 000 000; 1.000.000), a
    decimal point, or a decimal comma before other than three digits (4,2); fractions (1/2, 1 1/2, \\frac{1}{2}), powers
    (10^5, 3 x 10^5, 3e5) and Unicode's forms of all these. A percent sign changes nothing.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[Sample] = Sample(gold={"gold": "168", "answer": "It is 168."})

    rule: Literal["numeric"] = "numeric"
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    """Relative to golds beyond 1, absolute within."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        """Compares the numbers; a task whose golds hold none is unscorable."""
        texts = golds(trajectory.task.answer)
        numbers = [number for text in texts if (number := last_number(text)) is not None]
        if not numbers:
            return Verdict(None, f"no number in the gold answer {', '.join(map(repr, texts))}")
        answer = None if trajectory.answer is None else last_number(trajectory.answer)
        if answer is None:
            return Verdict(0.0, "no number in the answer")
        if any(abs(answer - number) <= self.tolerance * max(1.0, abs(number)) for number in numbers):
            return Verdict(1.0, "right")
        return Verdict(0.0, f"got {answer:g}; expected {' or '.join(f'{number:g}' for number in numbers)}")
