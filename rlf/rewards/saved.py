"""Trajectories in a JSONL file, one a line: as `rlf runs export` writes them, or facts as `tests:` have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from rlf.core import RlfError
from rlf.rewards.facts import TrajectoryFacts
from rlf.rewards.json_lines import read_json_lines
from rlf.types import Score, Scored
from rlf.types.written import from_row


class SavedTrajectory(TrajectoryFacts):
    """One line of the file."""

    id: str | None = None
    """Its name in reports; None: its line's number."""
    task: str | None = None
    """What the rollouts of one task share, for advantages; None: the question."""
    reward: float | None = None
    """The reward it had; None: unknown."""
    scores: Mapping[str, float] = Field(default={})
    """The terms' values it had, by name, at weight 1."""

    def scored(self, number: int) -> Scored:
        """The trajectory with what it had; `number` is the line's."""
        name = self.id or f"line {number}"
        trajectory = self.trajectory(name, task_id=self.task or self.question or name)
        scores = tuple(Score(term, value, 1.0) for term, value in self.scores.items())
        return Scored(trajectory, scores, self.reward, success=None)


def read_saved(path: Path) -> list[Scored]:
    """The trajectories of a file. Raises RlfError, or SpecError with every line that is wrong."""
    found = read_json_lines(path, "trajectories", _read_saved_line)
    if not found:
        raise RlfError(f"{path}: holds no trajectory; expected one JSON object a line. Name another file.")
    return found


def _read_saved_line(values: Any, number: int) -> Scored:
    if isinstance(values, dict) and "scored" in values:
        return from_row(values)
    return SavedTrajectory.model_validate(values).scored(number)
