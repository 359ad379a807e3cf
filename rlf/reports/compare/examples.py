"""Questions that came out differently, with both trajectories whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlf.lineage.records import StoredTrajectory, TrajectorySummary
from rlf.reports.compare.arms import Arm
from rlf.reports.compare.comparison import Comparison

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader


@dataclass(frozen=True, slots=True)
class Example:
    """One question as the first runs of two arms answered it at their last evaluation."""

    task_id: str
    left_letter: str
    left: StoredTrajectory
    right_letter: str
    right: StoredTrajectory


def read_examples(reader: Reader, found: Comparison, limit: int) -> list[Example]:
    """The first `limit` flips of each arm against the baseline; those that the arm lost come first."""
    examples = []
    for arm, contrast in zip(found.arms[1:], found.contrasts, strict=True):
        flips = sorted(contrast.flips, key=lambda flip: flip.gained)[:limit] if contrast is not None else []
        for flip in flips:
            left = _read_example_trajectory(reader, found.arms[0], flip.left)
            examples.append(
                Example(
                    flip.task_id,
                    found.arms[0].letter,
                    left,
                    arm.letter,
                    _read_example_trajectory(reader, arm, flip.right),
                )
            )
    return examples


def _read_example_trajectory(reader: Reader, arm: Arm, summary: TrajectorySummary) -> StoredTrajectory:
    run_id = arm.members[0].run.record.id
    return reader.trajectory(run_id, k=summary.k, step=summary.step, phase=summary.phase)
