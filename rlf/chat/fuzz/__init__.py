"""Fuzzing of a chat format's parser: mutated calls and their outcomes. Nothing is run."""

from rlf.chat.fuzz.foreign import ForeignTally, foreign_writers, read_foreign
from rlf.chat.fuzz.operators import OPERATORS, Operator
from rlf.chat.fuzz.report import Finding, Outcome, Reader, Tally, fuzz

__all__ = [
    "OPERATORS",
    "Finding",
    "ForeignTally",
    "Operator",
    "Outcome",
    "Reader",
    "Tally",
    "foreign_writers",
    "fuzz",
    "read_foreign",
]
