"""Trajectories that are looked for: by a filter, by text, by an outcome that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import TYPE_CHECKING

from rlf.apps.look.text_index import TextIndex, all_text
from rlf.core.text import shorten
from rlf.lineage.records import StoredTrajectory, TrajectoryFilter, TrajectorySummary
from rlf.reports.summary import pairs, read_changes

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader

MAX_QUESTION = 60
_BATCH = 64


@dataclass(frozen=True, slots=True)
class TrajectoryMatch:
    """A trajectory that was looked for, with its question."""

    summary: TrajectorySummary
    question: str


def find(
    reader: Reader,
    run_id: str,
    wanted: TrajectoryFilter,
    text: str | None,
    limit: int,
    after: tuple[str, int, int] | None = None,
) -> list[TrajectoryMatch]:
    """The trajectories that match, whole ones only where a text is looked for in prompts, turns and results.

    Args:
        after: phase, step and position of the one behind which the wanted ones stand.
    """
    heads: Iterable[TrajectorySummary] = reader.trajectories(run_id, wanted)
    if after is not None:
        heads = list(islice(dropwhile(lambda head: (head.phase, head.step, head.k) != after, heads), 1, None))
    if text is not None:
        heads = _with_words(reader, run_id, list(heads), text)
    matches = (
        TrajectoryMatch(summary, _read_question(stored))
        for summary, stored in _read_some(reader, run_id, list(heads), limit)
        if text is None or (stored is not None and text.lower() in all_text(stored).lower())
    )
    return list(islice(matches, limit))


def _read_some(
    reader: Reader, run_id: str, heads: Sequence[TrajectorySummary], number: int
) -> Iterator[tuple[TrajectorySummary, StoredTrajectory | None]]:
    """Each with its whole trajectory, of which a number is read at once."""
    number = max(1, min(number, _BATCH))
    for start in range(0, len(heads), number):
        some = heads[start : start + number]
        yield from zip(some, reader.wholes(run_id, some), strict=True)


def find_flipped(reader: Reader, run_id: str, limit: int) -> list[TrajectoryMatch]:
    """Held-out questions whose outcome changed from the first evaluation to the last, as they were tried last."""
    flipped = [
        pair.after
        for change in read_changes(reader, run_id)
        for pair in pairs(change)
        if pair.before.success != pair.after.success
    ]
    return [TrajectoryMatch(summary, _read_question(reader.whole(run_id, summary))) for summary in flipped[:limit]]


def _read_question(stored: StoredTrajectory | None) -> str:
    messages = () if stored is None else stored.scored.trajectory.task.messages
    return shorten(" ".join(messages[-1].content.split()), MAX_QUESTION) if messages else ""


def _with_words(reader: Reader, run_id: str, heads: Sequence[TrajectorySummary], text: str) -> list[TrajectorySummary]:
    """Those of a run's trajectories that can hold a text, in their order; all where no index can be kept."""
    file = reader.store.index_file
    if file is None:
        return list(heads)

    def read(head: TrajectorySummary) -> str | None:
        stored = reader.whole(run_id, head)
        return None if stored is None else all_text(stored)

    return list(TextIndex(file).narrow(run_id, heads, text, read))
