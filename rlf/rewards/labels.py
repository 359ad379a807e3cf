"""What people say of trajectories: lines of a JSONL file, for judges to be calibrated with and to be imitated."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import StrictBool, StrictFloat, StrictInt

from rlf.rewards.facts import TrajectoryFacts, read_json_lines


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
    kind: str | None = None
    """A word of the person's own for what kind of answer it is."""
    comment: str | None = None


LABELS = "labels.jsonl"
"""Of a runs folder: what people say of its trajectories. The page writes it; `rlf demos` reads its labels."""


def label_id(run_id: str, phase: str, step: int, k: int) -> str:
    """The `id` of a trajectory there."""
    return f"{run_id}/{phase}/{step}/{k}"


def read_labelled_lines(path: str | Path) -> list[LabelledLine]:
    """The lines of a file. Raises RlfError, or SpecError with every line that is wrong."""
    return read_json_lines(path, "labelled trajectories", lambda value, _: LabelledLine.model_validate(value))
