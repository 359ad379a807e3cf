"""Trajectories that are looked for: by a filter, by text, by an outcome that changed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.core.text import shorten
from rlf.lineage.records import StoredTrajectory, TrajectoryFilter, TrajectorySummary
from rlf.reports.summary import pairs, read_changes

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader

# Where the words of trajectories are: an index beside a SQLite lineage, made from it, that can be deleted at any time.
#
# Texts are compressed in the lineage, so that looking for one decodes every trajectory. The index says which ones can
# have it: each is indexed when it is first looked through, and what the index names is decoded and compared as before.
# A row of it counts for one very trajectory, known by its place and duration; one that a resumed run made again is
# indexed again.

# Words as FTS5's unicode61 tokenizer cuts them: `_` separates, unlike in `\w`.
_WORD = re.compile(r"[^\W_]+")
_INDEX_BATCH = 200
_MAX_TERMS = 500
_NOTHING = f'"{chr(0x10FFFD)}"'
"""A word of no text."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS place (id INTEGER PRIMARY KEY, run TEXT, phase TEXT, step INTEGER, k INTEGER, "
    "duration REAL, UNIQUE (run, phase, step, k, duration));"
    "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='', tokenize='unicode61 remove_diacritics 0');"
    "CREATE VIRTUAL TABLE IF NOT EXISTS vocabulary USING fts5vocab(words, row);"
)
Key = tuple[str, int, int, float]


class TextIndex:
    """The index in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def narrow(
        self,
        run_id: str,
        heads: Sequence[TrajectorySummary],
        text: str,
        read: Callable[[TrajectorySummary], str | None],
    ) -> Iterator[TrajectorySummary]:
        """The trajectories that can have a text, in their order; all of them without an index.

        Args:
            read: the whole text of one; None where it is not kept.
        """
        try:
            with closing(self._open_index()) as connection:
                known = self._read_known(connection, run_id)
                self._add_texts(
                    connection, run_id, [head for head in heads if _trajectory_key(head) not in known], read
                )
                known = self._read_known(connection, run_id)
                query = _make_query(connection, text)
                matching = (
                    () if query is None else connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (query,))
                )
                found = {row[0] for row in matching}
        except sqlite3.Error:
            yield from heads
            return
        for head in heads:
            place = known.get(_trajectory_key(head))
            if query is None or place is None or place in found:
                yield head

    def _open_index(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=5.0)
        try:
            connection.executescript(_TABLES)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _read_known(self, connection: sqlite3.Connection, run_id: str) -> dict[Key, int]:
        rows = connection.execute("SELECT phase, step, k, duration, id FROM place WHERE run = ?", (run_id,))
        return {(phase, step, k, duration): place for phase, step, k, duration, place in rows}

    def _add_texts(
        self,
        connection: sqlite3.Connection,
        run_id: str,
        heads: Sequence[TrajectorySummary],
        read: Callable[[TrajectorySummary], str | None],
    ) -> None:
        for start in range(0, len(heads), _INDEX_BATCH):
            with connection:
                for head in heads[start : start + _INDEX_BATCH]:
                    text = read(head)
                    if text is None:
                        continue
                    row = (run_id, *_trajectory_key(head))
                    cursor = connection.execute(
                        "INSERT OR IGNORE INTO place (run, phase, step, k, duration) VALUES (?, ?, ?, ?, ?)", row
                    )
                    if cursor.rowcount:
                        words = "INSERT INTO words (rowid, text) VALUES (?, ?)"
                        connection.execute(words, (cursor.lastrowid, _fold_text(text)))


def all_text(stored: StoredTrajectory) -> str:
    """The texts of a trajectory: messages, turns and results."""
    trajectory = stored.scored.trajectory
    asked = (trajectory.task.messages, *(turn.asked for turn in trajectory.turns))
    parts = [message.content for messages in asked for message in messages]
    parts += [turn.text for turn in trajectory.turns]
    parts += [record.result.text for record in trajectory.calls]
    return "\n".join(parts)


def _trajectory_key(head: TrajectorySummary) -> Key:
    return head.phase, head.step, head.k, head.duration_s


def _fold_text(text: str) -> str:
    return text.lower().encode("utf-8", "replace").decode()


def _make_query(connection: sqlite3.Connection, text: str) -> str | None:
    """A query that every trajectory with the text matches; None where no word decides.

    The first word of a text may be the end of a longer one, and the last one the beginning.
    """
    lowered = _fold_text(text)
    if not lowered.isascii():
        return None
    parts = []
    for word in _WORD.finditer(lowered):
        is_first, is_last = word.start() == 0, word.end() == len(lowered)
        if is_first:
            terms = _find_terms(connection, f"%{word[0]}{'%' if is_last else ''}")
            parts += [] if terms is None else [f"({' OR '.join(terms)})"] if terms else [_NOTHING]
        else:
            parts.append(f'"{word[0]}"{" *" if is_last else ""}')
    return " AND ".join(parts) or None


def _find_terms(connection: sqlite3.Connection, pattern: str) -> list[str] | None:
    """The words of the index that are like a pattern, quoted; None where they are too many to ask for."""
    rows = connection.execute("SELECT term FROM vocabulary WHERE term LIKE ? LIMIT ?", (pattern, _MAX_TERMS + 1))
    found = [f'"{term}"' for (term,) in rows]
    return None if len(found) > _MAX_TERMS else found


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
