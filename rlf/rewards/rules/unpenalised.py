"""`rule: unpenalised`: what is left of 1 after the parse failures that `chat.failures` penalises."""

from __future__ import annotations

from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class Unpenalised(Rule):
    """1 / (1 + failures whose class `chat.failures` maps to `penalise`); 0 if nothing was called or answered."""

    sample: ClassVar[KnownSample] = KnownSample(gold={"answer": "Ann"})

    rule: Literal["unpenalised"] = "unpenalised"

    def judge(self, trajectory: Trajectory) -> Verdict:
        number = trajectory.num_penalised
        if not (number or trajectory.calls or (trajectory.answer or "").strip()):
            return Verdict(0.0, "nothing was called or answered")
        return Verdict(1 / (1 + number), f"{number} penalised failures")
