"""The exception tree. An `RlfError` is the user's to fix and is shown without a traceback.

Anything that is not an `RlfError` is a defect of rlf and keeps its traceback. Tool failures are no exceptions
at all: they are typed outcomes (`rlf.types.tool.Outcome`), because the model reads them and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class RlfError(Exception):
    """An error that the user can fix: the message names the place, the value, what is allowed and what to do."""

    exit_code = 2


class NotFoundError(RlfError):
    """There is nothing of a given name."""


class RunError(RlfError):
    """A run failed for a reason outside its input (full disk, port in use, out of memory)."""

    exit_code = 1


class OutageError(RunError):
    """What the run needs has been down for too long, or for good: nothing was trained on since."""


class CheckError(RlfError):
    """A check that the user asked for did not pass (`tools test`, `rewards test`)."""

    exit_code = 3


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in an input file; line and column count from 1."""

    file: str
    line: int = 0
    """0 means the file as a whole."""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault of an input, with its fix."""

    place: Place
    path: str
    """Dotted key path inside the document, e.g. `rewards[1].weight`; empty for the file itself."""
    message: str
    """What was there; what is allowed. What to write."""

    def __str__(self) -> str:
        where = f"{self.place} {self.path}" if self.path else str(self.place)
        return f"{where}: {self.message}"


class SpecError(RlfError):
    """All faults of an input at once, sorted by place."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(faults))
        assert self.faults, "a SpecError without a fault"
        super().__init__("\n".join(str(fault) for fault in self.faults))


def describe_type(value: object) -> str:
    """`an int`: the type of a value with its article."""
    name = type(value).__name__
    return f"an {name}" if name[:1] in "aeioAEIO" else f"a {name}"


def first_line(error: Exception) -> str:
    """The first line of an error's text; its class where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
