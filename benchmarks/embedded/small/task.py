"""One task of the small model's pretraining: what it reads, what it is to write, and ways to do it badly."""

from __future__ import annotations

from dataclasses import dataclass

Call = tuple[str, dict[str, str]]
"""A tool's name and its arguments."""


@dataclass(frozen=True, slots=True)
class Task:
    """A question with its one right call, the call's result and the answer."""

    kind: str
    system: str
    """Text of the system block: the tools' documents."""
    question: str
    call: Call
    result: str
    answer: str
    wrong_answers: tuple[str, ...] = ()
    """Other things that the result says, and were not asked."""
    wrong_call: Call | None = None
    """A call that looks right and finds something else."""

    def run(self, name: str, arguments: dict[str, str]) -> str:
        """The result of a call: right where the call is, to the letter."""
        return self.result if (name, arguments) == self.call else "Error: not found"
