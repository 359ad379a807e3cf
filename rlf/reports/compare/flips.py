"""Which questions came out differently: a row for each question, a column for each arm, and where two arms part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlf.lineage.records import TrajectorySummary
from rlf.reports.compare.comparison import Comparison
from rlf.reports.compare.examples import Example, pair_of
from rlf.reports.compare.outcomes import tries_at
from rlf.reports.quantities import visible


@dataclass(frozen=True, slots=True)
class FlipRow:
    """One question, as the first runs of the arms answered it at their last evaluation."""

    task_id: str
    kind: str
    """Empty where the data names none."""
    question: str
    """Empty where no trajectory of it was read."""
    successes: tuple[float | None, ...]
    """By arm; None where the question was not asked or could not be scored."""
    turns: tuple[int | None, ...]
    """By arm: the first turn that differs from the baseline's. None for the baseline, without a flip, or unread."""

    @property
    def flipped(self) -> bool:
        """Whether any arm came out differently from the baseline."""
        return any(value is not None and value != self.successes[0] for value in self.successes[1:]) and (
            self.successes[0] is not None
        )


@dataclass(frozen=True, slots=True)
class KindRows:
    """The questions of one kind."""

    kind: str
    rows: tuple[FlipRow, ...]
    gained: tuple[int, ...]
    """By arm, the baseline's 0 with it."""
    lost: tuple[int, ...]
    first_turns: tuple[Counter[int], ...]
    """By arm: questions by the first turn that differs."""


def flip_matrix(found: Comparison, examples: Sequence[Example]) -> list[KindRows]:
    """Every question that the arms were asked, by kind; the kinds with most flips first."""
    read = {(example.right_letter, example.task_id): example for example in examples}
    steps = [None if one is None else one.step for one in found.contrasts]
    compared = [
        tries_at(arm.members[0], found.mode or "", step)
        for arm, step in zip(found.arms, [*steps[:1], *steps], strict=True)  # the baseline as it met the first of them
    ]
    tries = [{item.task_id: item for item in items if item.sample_index == 0} for items in compared]
    rows = [_make_flip_row(task, tries, found, read) for task in dict.fromkeys(task for side in tries for task in side)]
    by_kind: dict[str, list[FlipRow]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)
    kinds = [_make_kind(kind, members, len(found.arms)) for kind, members in by_kind.items()]
    return sorted(kinds, key=lambda one: (-sum(one.gained) - sum(one.lost), one.kind))


def _make_flip_row(
    task: str,
    tries: Sequence[dict[str, TrajectorySummary]],
    found: Comparison,
    read: dict[tuple[str, str], Example],
) -> FlipRow:
    items = [side.get(task) for side in tries]
    examples = [read.get((arm.letter, task)) for arm in found.arms]
    return FlipRow(
        task_id=task,
        kind=next((item.kind for item in items if item is not None and item.kind), ""),
        question=next((question_of(example) for example in examples if example is not None), ""),
        successes=tuple(None if item is None or item.reward is None else item.success for item in items),
        turns=tuple(None if example is None else pair_of(example, {}).first_difference for example in examples),
    )


def _make_kind(kind: str, rows: Sequence[FlipRow], num_arms: int) -> KindRows:
    def flips(place: int, *, gained: bool) -> int:
        pairs = [(row.successes[0], row.successes[place]) for row in rows]
        return sum(
            one is not None and other is not None and (other > one if gained else other < one) for one, other in pairs
        )

    return KindRows(
        kind,
        tuple(sorted(rows, key=lambda row: (not row.flipped, row.task_id))),
        tuple(flips(place, gained=True) for place in range(num_arms)),
        tuple(flips(place, gained=False) for place in range(num_arms)),
        tuple(Counter(turn for row in rows if (turn := row.turns[place])) for place in range(num_arms)),
    )


def question_of(example: Example) -> str:
    """The last message of the prompt, in one line."""
    messages = example.left.scored.trajectory.task.messages
    return visible(" ".join(messages[-1].content.split()) if messages else example.task_id)


def turn_words(turns: Counter[int]) -> str:
    """`turn 1: 12, turn 2: 3`."""
    return ", ".join(f"turn {turn}: {number}" for turn, number in sorted(turns.items()))
