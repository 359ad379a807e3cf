"""Questions that came out differently, with both trajectories whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlf.lineage.records import StoredTrajectory, TrajectorySummary
from rlf.reports.compare.arms import Arm
from rlf.reports.compare.comparison import Comparison
from rlf.reports.opening import ReadOpening, no_opening
from rlf.reports.pages.turns import SidePair, beside, side

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader

MATRIX_FLIPS = 512
"""Questions for each arm whose first differing turn is looked for."""


@dataclass(frozen=True, slots=True)
class Example:
    """One question as the first runs of two arms answered it at their last evaluation."""

    task_id: str
    left_letter: str
    left: StoredTrajectory
    right_letter: str
    right: StoredTrajectory


def read_examples(reader: Reader, found: Comparison, limit: int = MATRIX_FLIPS) -> list[Example]:
    """The first `limit` flips of each arm against the baseline; those that the arm lost come first."""
    examples = []
    for arm, contrast in zip(found.arms[1:], found.contrasts, strict=True):
        flips = sorted(contrast.flips, key=lambda flip: flip.gained)[:limit] if contrast is not None else []
        for flip in flips:
            sides = ((found.arms[0], flip.left), (arm, flip.right))
            left, right = (_read_example_trajectory(reader, one, summary) for one, summary in sides)
            examples.append(Example(flip.task_id, found.arms[0].letter, left, arm.letter, right))
    return examples


def _read_example_trajectory(reader: Reader, arm: Arm, summary: TrajectorySummary) -> StoredTrajectory:
    run_id = arm.members[0].run.record.id
    return reader.trajectory(run_id, k=summary.k, step=summary.step, phase=summary.phase)


def first_of_each(examples: Sequence[Example], number: int) -> Iterator[Example]:
    """The first few of each arm."""
    num_seen: Counter[str] = Counter()
    for example in examples:
        num_seen[example.right_letter] += 1
        if num_seen[example.right_letter] <= number:
            yield example


def pair_of(example: Example, openings: Mapping[str, ReadOpening]) -> SidePair:
    """Both sides, turn beside turn.

    Args:
        openings: Reads what an arm's policy saw before the question, by the arm's letter.
    """
    left, right = (
        side(letter, stored, openings.get(letter, no_opening)(stored.scored.trajectory))
        for letter, stored in ((example.left_letter, example.left), (example.right_letter, example.right))
    )
    return beside(left, right)
