"""Trajectories with verdicts of people in a JSONL file: what judges are calibrated with, and sentinels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import StrictBool, StrictFloat, StrictInt

from rlf.rewards.facts import TrajectoryFacts
from rlf.rewards.json_lines import read_json_lines
from rlf.rewards.judging.settings import Compare, Judging
from rlf.types import Trajectory

_WINNERS: Mapping[str, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}


class LabelledLine(TrajectoryFacts):
    """One line of the file."""

    label: StrictBool | StrictInt | StrictFloat | Literal["first", "second", "tie"]
    """true or false, or a number on the judge's `range`; of a comparison whether `answer` (first) or `other` is
    better."""
    id: str | None = None
    """Its name in reports; None: its line's number."""
    other: str | None = None
    """The answer that `answer` is compared with, by a judge that compares pairs."""
    author: str | None = None
    """Who wrote the answer: the model's name as `endpoints` have it, for the judge's liking of itself."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A trajectory and what people say of it."""

    trajectory: Trajectory
    label: float
    """Between 0 and 1; of a comparison 1, 1/2 or 0."""
    author: str | None


def read_labels(path: str, judging: Judging) -> list[Labelled]:
    """The items of a file, as a judge takes them. Raises RlfError, or SpecError with every line that is wrong."""

    def read(value: Any, number: int) -> Labelled:
        return _read_label(LabelledLine.model_validate(value), number, judging)

    return read_json_lines(path, "labelled trajectories", read, key_depth=1)


def _read_label(line: LabelledLine, number: int, judging: Judging) -> Labelled:
    name = line.id or f"line {number}"
    task = line.question or name if judging.compares_groups else name
    if judging.compare is Compare.PAIRWISE and not judging.compares_groups:
        if line.label not in _WINNERS or line.other is None:
            raise ValueError("expected `other`, and a label of first, second or tie, for a judge that compares pairs")
        line = line.model_copy(update={"gold": line.other})
        return Labelled(line.trajectory(name, task_id=task), _WINNERS[str(line.label)], line.author)
    if isinstance(line.label, str):
        raise ValueError(
            f"the label {line.label!r} is for a judge that compares pairs; expected a number, true or false"
        )
    return Labelled(line.trajectory(name, task_id=task), _scale_label(line.label, judging.range), line.author)


def _scale_label(label: bool | float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    if isinstance(label, bool):
        return float(label)
    if not low <= label <= high:
        raise ValueError(f"the label {label:g} lies outside the judge's range, {low:g} to {high:g}")
    return (label - low) / (high - low)
