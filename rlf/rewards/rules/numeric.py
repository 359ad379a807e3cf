"""`rule: numeric`: the number of the answer equals a gold's, within a tolerance."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from rlf.rewards.answers import Answer, number_in, read_answer_text, result_of
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class Numeric(Rule):
    """1 if |answer - gold| <= tolerance * max(1, |gold|) for one of the golds, else 0.

    The number of a text is the last one, or where "the answer is", \\boxed{} or <answer> announces it that one. Several
    that are named side by side ("5 or 6", "5-6", "5, 6"), one that is denied ("not 5") or only bounded ("at least 5")
    are none; "about 5" is 5. Numbers have digits in groups of three (1,000,000; 1 000 000; 1.000.000), a decimal point,
    or a decimal comma before other than three digits (4,2); they are fractions (1/2, 1 1/2, \\frac{1}{2}), powers
    (10^5, 3 x 10^5, 3e5), words (twelve, two million), and Unicode's forms of these. Of a date it is the year.

    Where gold and answer have a unit, both must be of one dimension, and are compared in the gold's: 1 km is 1000 m,
    and not 1 kg. Without a unit an answer is in the gold's, and the other way round; a percentage is also its share, so
    that for 75 % both 75 and 0.75 are right.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": "168", "answer": "It is 168."})

    gold_advice: ClassVar[str] = "Write each as one number, or `rule: exact_match`."

    rule: Literal["numeric"] = "numeric"
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    """Relative to golds beyond 1, absolute within."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        """Compares the numbers; a task whose golds hold none is unscorable."""
        texts = golds(trajectory.task.answer)
        right = [number for text in texts if (number := number_in(text)) is not None]
        if not right:
            return Verdict(None, f"no number in the gold answer {', '.join(map(repr, texts))}")
        given = number_in(trajectory.answer or "")
        if given is None:
            return Verdict(0.0, "no number in the answer, or several")
        if any(gold.is_near(given, self.tolerance) for gold in right):
            return Verdict(1.0, "right")
        return Verdict(0.0, f"got {given}; expected {' or '.join(map(str, right))}")

    def read_gold(self, gold: str) -> Answer:
        number, whole = number_in(gold), read_answer_text(result_of(gold))
        if number is None:
            return whole._replace(fault="is no number, and is unscorable")
        others = len(re.findall(r"\d+", result_of(gold))) > 1 and whole.form != "number"
        return Answer("number", number.in_base(), number, f"is not one number; read as {number}" if others else "")
