"""What is done to recorded runs: tags and notes, the removal of runs, thinning by rule.

Thinning takes the bulk of training trajectories away (tokens, calls, scores, failures) and leaves their rows, sums and
metrics, so that every step and report stays; evaluations are never thinned.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.chain import LinkKind, append_link
from rlf.lineage.lease import Lease
from rlf.lineage.reader import Reader
from rlf.lineage.records import REMOVING, TRAIN
from rlf.lineage.resumed import check_stopped
from rlf.lineage.store import Store

_BATCH = 500
_KEEP = re.compile(r"(?P<rule>last|every):(?P<number>[1-9][0-9]*)|(?P<word>none|failed)")
KEEP_FORM = "`last:N` steps, `every:N` steps, `failed` (success below 1, or unscorable), or `none`"


@dataclass(frozen=True, slots=True)
class Keep:
    """Rules for the training trajectories that keep their bulk: those that any rule names."""

    last: int = 0
    """The newest so many steps."""
    every: int | None = None
    """Steps whose number this divides."""
    failed: bool = False
    """Trajectories whose success is below 1 or that could not be scored."""


def parse_keep(words: Sequence[str]) -> Keep:
    """Parses retention rules. Raises RlfError for an unknown one."""
    keep = Keep()
    for word in words:
        match = _KEEP.fullmatch(word)
        if match is None:
            raise RlfError(f"--keep: got {word!r}; expected {KEEP_FORM}. Write e.g. `--keep last:5 --keep failed`.")
        if match["rule"] == "last":
            keep = replace(keep, last=int(match["number"]))
        elif match["rule"] == "every":
            keep = replace(keep, every=int(match["number"]))
        elif match["word"] == "failed":
            keep = replace(keep, failed=True)
    return keep


def thin(store: Store, run_id: str, keep: Keep) -> int:
    """Thins a stopped run's training trajectories; returns how many.

    Raises:
        RlfError: the run is still running.
    """
    columns = tables.trajectories.c
    with store.read() as connection:
        check_stopped(store, connection, run_id)
        query = select(columns.id, columns.step, columns.k).where(*_conditions_of_thinned(connection, run_id, keep))
        rows = connection.execute(query).all()
    for start in range(0, len(rows), _BATCH):
        batch, steps = rows[start : start + _BATCH], dict[int, list[int]]()
        for row in batch:
            steps.setdefault(row.step, []).append(row.k)
        with store.write() as connection:  # a batch at a time: others write in between
            check_stopped(store, connection, run_id)
            for table in tables.OF_TRAJECTORY:
                connection.execute(delete(table).where(table.c.trajectory_ref.in_([row.id for row in batch])))
            append_link(connection, run_id, LinkKind.THINNED, {"phase": TRAIN, "steps": steps})
    if rows:
        store.drop_index()
    return len(rows)


def _conditions_of_thinned(connection: Connection, run_id: str, keep: Keep) -> Iterator[ColumnElement[bool]]:
    columns = tables.trajectories.c
    here = (columns.run_id == run_id, columns.phase == TRAIN)
    yield from here
    yield select(tables.payloads.c.trajectory_ref).where(tables.payloads.c.trajectory_ref == columns.id).exists()
    newest = connection.execute(select(func.max(columns.step)).where(*here)).scalar() or 0
    yield columns.step <= newest - keep.last
    if keep.every is not None:
        yield columns.step % keep.every != 0
    if keep.failed:
        yield columns.success >= 1.0


def add_tags(store: Store, run_id: str, tags: tuple[str, ...]) -> None:
    """Gives a run tags; those that it has stay."""
    with store.write() as connection:
        remove = delete(tables.tags).where(tables.tags.c.run_id == run_id, tables.tags.c.tag.in_(tags))
        connection.execute(remove)
        connection.execute(insert(tables.tags), [{"run_id": run_id, "tag": store.redactor.text(tag)} for tag in tags])


def remove_tags(store: Store, run_id: str, tags: tuple[str, ...]) -> None:
    """Takes tags off a run; unknown tags are ignored."""
    with store.write() as connection:
        connection.execute(delete(tables.tags).where(tables.tags.c.run_id == run_id, tables.tags.c.tag.in_(tags)))


def add_note(store: Store, run_id: str, text: str) -> None:
    """Adds a remark to a run."""
    with store.write() as connection:
        row = {"run_id": run_id, "time": time.time(), "text": store.redactor.text(text)}
        connection.execute(insert(tables.notes), row)


def forget_checkpoints(store: Store, run_id: str, steps: Collection[int]) -> None:
    """Deletes the rows of a run's checkpoints of these steps."""
    table = tables.checkpoints
    with store.write() as connection:
        connection.execute(delete(table).where(table.c.run_id == run_id, table.c.step.in_(steps)))
        append_link(connection, run_id, LinkKind.FORGOTTEN, {"steps": sorted(steps)})


@contextmanager
def removing(store: Store, run_ids: Sequence[str]) -> Iterator[None]:
    """Deletes runs after the block, which deletes what they have outside of the lineage.

    They are marked first, all or none, and shown no more: where a kill or an error cuts the block off, they are among
    the `unfinished_removals`.

    Raises:
        RlfError: no such run, or it is still running.
    """
    leases = []
    try:
        with store.write() as connection:
            for run_id in run_ids:
                check_stopped(store, connection, run_id)
                leases.append(Lease(run_id, store.lease_folder))
                marked = {"status": REMOVING, **leases[-1].columns()}
                connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(marked))
        yield
        for lease in leases:
            with store.write() as connection:
                connection.execute(delete(tables.runs).where(tables.runs.c.id == lease.run_id))
            lease.is_over = True
    finally:
        for lease in leases:
            lease.release()
    store.drop_index()


# Tags and notes of runs, as commands and pages give them.


@dataclass(frozen=True, slots=True)
class RunTags:
    """A run with all of its tags."""

    run_id: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunNote:
    """A run with its new note."""

    run_id: str
    num_notes: int


def tag(reader: Reader, name: str, tags: Sequence[str], *, remove: bool) -> RunTags:
    """Gives a run tags, or takes them off."""
    for word in tags:
        if not word.strip() or not word.isprintable():
            raise RlfError(f"got the tag {word[:80]!r}; expected a word. Write e.g. `rlf runs tag latest best`.")
    run_id = reader.get_run(name).record.id
    change = remove_tags if remove else add_tags
    change(reader.store, run_id, tuple(dict.fromkeys(tags)))
    return RunTags(run_id, reader.tags().get(run_id, ()))


def note(reader: Reader, name: str, text: str) -> RunNote:
    """Adds a note to a run."""
    run_id = reader.get_run(name).record.id
    add_note(reader.store, run_id, text)
    return RunNote(run_id, len(reader.notes(run_id)))
