"""`rule: length`: the answer is neither too short nor too long."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from rlf.core.kinds import wrong_value
from rlf.core.redact import fold
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class Unit(StrEnum):
    """The unit that is counted."""

    WORDS = "words"
    """Runs of characters between white space."""
    CHARACTERS = "characters"
    """Characters, without white space at the ends and what has no width."""


class Length(Rule):
    """1 from `at_least` to `at_most`; below n / at_least; above 2 - n / at_most, and 0 from twice at_most on.

    Without an answer 0.
    """

    sample: ClassVar[KnownSample] = KnownSample(gold={"answer": "in the town of Paris"}, options={"at_most": 8})

    rule: Literal["length"] = "length"
    unit: Unit = Unit.WORDS
    at_least: int = Field(default=1, ge=1)
    """Shortest length that has 1."""
    at_most: int | None = Field(default=None, ge=1)
    """Longest length that has 1; None: no bound."""

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if self.at_most is not None and self.at_most < self.at_least:
            raise wrong_value(
                f"got at_least: {self.at_least} above at_most: {self.at_most}; no length fits. Swap them."
            )
        return self

    def judge(self, trajectory: Trajectory) -> Verdict:
        answer = fold(trajectory.answer or "").strip()
        if not answer:
            return Verdict(0.0, "no answer")
        n = len(answer.split()) if self.unit is Unit.WORDS else len(answer)
        value = min(1.0, n / self.at_least)
        if self.at_most is not None and n > self.at_most:
            value = max(0.0, 2 - n / self.at_most)
        return Verdict(value, f"{n} {self.unit}")
