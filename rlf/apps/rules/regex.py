"""`rule: regex`: a pattern is found in the answer or in what was sampled."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

import regex
from pydantic import field_validator

from rlf.core.kinds import wrong_value
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory

_TIMEOUT_S = 0.5


class Where(StrEnum):
    """The text that is searched."""

    ANSWER = "answer"
    """The final answer."""
    TEXT = "text"
    """Everything that the policy sampled, turn by turn, with line breaks between."""


class Regex(Rule):
    """1 if the pattern is found, else 0; nothing sampled holds no pattern.

    The pattern is of the library `regex`, whose syntax is that of `re` and more. One that has not come to an end after
    half a second leaves the trajectory unscorable.
    """

    sample: ClassVar[KnownSample] = KnownSample(gold={"answer": "It is 42."}, options={"pattern": r"\b42\b"})

    rule: Literal["regex"] = "regex"
    pattern: str
    """Found anywhere, unless `^` and `$` say otherwise."""
    where: Where = Where.ANSWER

    @field_validator("pattern")
    @classmethod
    def _pattern_is_right(cls, pattern: str) -> str:
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise wrong_value(f"got {pattern!r}; it is not a regular expression: {error}. Fix the pattern.") from error
        return pattern

    def judge(self, trajectory: Trajectory) -> Verdict:
        text = trajectory.answer
        if self.where is Where.TEXT:
            text = "\n".join(turn.text for turn in trajectory.turns)
        if not text or not text.strip():
            return Verdict(0.0, "there is no text to search")
        try:
            found = regex.search(self.pattern, text, timeout=_TIMEOUT_S)
        except TimeoutError:
            return Verdict(None, f"the pattern did not finish on {len(text)} characters within {_TIMEOUT_S:g} s")
        return Verdict(1.0, f"found {found[0][:80]!r}") if found else Verdict(0.0, "not found")
