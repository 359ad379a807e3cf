"""What is done to recorded runs: tags and notes, the removal of runs, thinning by rule, and what a resume deletes.

Thinning takes the bulk of training trajectories away (tokens, calls, scores, failures) and leaves their rows, sums and
metrics, so that every step and report stays; evaluations are never thinned.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.blobs import Blobs, write_blobs
from rlf.lineage.chain import NOTICE, LinkKind, append_link, digest_changes
from rlf.lineage.lease import LEASE_S, Lease, describe_owner, has_owner
from rlf.lineage.process import Process, is_gone
from rlf.lineage.reader import Reader
from rlf.lineage.records import INTERRUPTED, REMOVING, TRAIN, AcceptedChange
from rlf.lineage.run import Texts, last_sign_of_life
from rlf.lineage.store import Store
from rlf.types import RunStatus, Score
from rlf.types.events import SAMPLED

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


def send_signal(process: Process, number: int, *, to_session: bool = False) -> bool:
    """Sends a signal to the same process; false if it is gone. A reused pid gets none.

    Args:
        to_session: whether all processes of the group that it leads get it.
    """
    try:
        held = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if is_gone(process):  # from here on the pid is held, so that it cannot become another's
            return False
        if to_session:
            os.killpg(process.pid, number)
        else:
            signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(held)
    return True


def accept_changes(store: Store, run_id: str, changes: Sequence[AcceptedChange], texts: Texts) -> None:
    """Records that a run continues with changed inputs. Replaces an earlier change at the same step.

    Args:
        texts: what is kept of the changed files.
    """
    redactor, blobs, table = store.redactor, Blobs(), tables.changes
    with store.write() as connection:
        for change in changes:
            text = texts.get((change.role, change.path))
            key = {"run_id": run_id, "step": change.step, "role": change.role, "path": redactor.text(change.path)}
            row = asdict(change) | key
            row["text_sha256"] = None if text is None else blobs.keep(redactor.text(text).encode())
            # A resume that ended before its next checkpoint is repeated from the same step. What the run was made from
            # is what the first of them found; a change that was taken back since then is none.
            earlier = connection.execute(select(table.c.old_sha256).filter_by(**key)).scalar()
            row["old_sha256"] = change.old_sha256 if earlier is None else earlier
            connection.execute(delete(table).filter_by(**key))
            if row["old_sha256"] != change.sha256:
                connection.execute(insert(table), row)
        write_blobs(connection, blobs.data_by_hash)
        append_link(connection, run_id, LinkKind.CHANGED, {}, digest_changes(connection, run_id))


def begin_resume(store: Store, run_id: str, from_step: int, *, take_over: bool = False) -> None:
    """Takes a run over from its checkpoint at `from_step`; deletes later rows, since those steps are repeated.

    Trajectories that a stop cut off stay. Why the run stopped becomes one of its events.

    Args:
        take_over: whether a process that seems to run it still loses it; that one ends at its next write.

    Raises:
        RlfError: There is no such run, or another process still runs it.
    """
    with store.write() as connection:
        row = _read_row(connection, run_id)
        # Asked again, under the write lock: `refuse_running` looked before the model was loaded, minutes ago.
        if not take_over and run_id not in store.leases:
            _refuse_owned(store, row)
        # A lock that this very store holds would refuse its own successor.
        store.let_go(run_id)
        lease = _take_lease(store, row, take_over=take_over)
        # Later rows go, and the run becomes this process's, in one transaction: killed here, the run is as it was.
        with store.holding(lease):
            again = (tables.steps, tables.evaluations, tables.checkpoints, tables.exports, tables.changes)
            for table in (*again, tables.collections, tables.tool_totals):
                connection.execute(delete(table).where(table.c.run_id == run_id, table.c.step > from_step))
            table = tables.trajectories
            left = (table.c.run_id == run_id, table.c.step > from_step, table.c.phase != INTERRUPTED)
            connection.execute(delete(table).where(*left))
            event = _event_of_end(row, take_over=take_over)
            connection.execute(insert(tables.events), event)
            digests = NOTICE.of(event), digest_changes(connection, run_id)
            append_link(connection, run_id, LinkKind.RESUMED, {"step": from_step}, *digests)
            now_running = {"status": RunStatus.RUNNING, "finished": None, "error": None, "last_step": from_step}
            idle_s = max(0.0, time.time() - last_sign_of_life(connection, row))
            values = now_running | {"idle_s": (row.idle_s or 0.0) + idle_s} | lease.columns()
            connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(values))


def refuse_running(store: Store, run_id: str) -> None:
    """Raises RlfError where a process still runs a run, before anything is prepared for its resumption."""
    with store.read() as connection:
        check_stopped(store, connection, run_id)


def check_stopped(store: Store, connection: Connection, run_id: str) -> None:
    """Raises RlfError where there is no such run, or where a process still runs it."""
    _refuse_owned(store, _read_row(connection, run_id))


def _read_row(connection: Connection, run_id: str) -> Row[Any]:
    row = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one_or_none()
    if row is None:
        raise RlfError(f"run {run_id}: not in the lineage. `rlf runs list` shows the runs there are.")
    return row


def _refuse_owned(store: Store, row: Row[Any]) -> None:
    if has_owner(row, store.lease_folder):
        raise RlfError(
            f"run {row.id}: still running as {describe_owner(row)}. Stop it first. If that process cannot be seen from "
            f"here and is dead, wait until that is {LEASE_S:g} s old, or take the run from it with "
            f"`rlf resume {row.id} --take-over`."
        )


def _take_lease(store: Store, row: Row[Any], *, take_over: bool) -> Lease:
    try:
        return Lease(row.id, store.lease_folder, takes_over=take_over)
    except BlockingIOError as error:
        raise RlfError(f"run {row.id}: another process is resuming it just now. Follow the run there.") from error


def _event_of_end(row: Row[Any], *, take_over: bool) -> dict[str, Any]:
    """How the run ended before it is resumed, since its row forgets that now."""
    if row.status != RunStatus.RUNNING:
        text = f"{row.status} after step {row.last_step}: {row.error or 'no reason was recorded'}"
    elif take_over:
        text = f"taken over after step {row.last_step} from {describe_owner(row)}"
    else:
        text = f"interrupted after step {row.last_step}: {describe_owner(row)}, ended without recording why"
    return {"run_id": row.id, "time": row.finished or time.time(), "level": "info", "text": text, "data": "{}"}


def training_scores(
    connection: Connection, run_id: str, terms: Collection[str]
) -> Iterator[tuple[int, int, str, Score]]:
    """Scores by some terms of what has a reward: step (0: the first evaluation, sampled), position, task, score."""
    columns, scores = tables.trajectories.c, tables.scores.c
    query = (
        select(columns.step, columns.k, columns.task_id, scores.term, scores.value, scores.weight)
        .join(tables.scores, scores.trajectory_ref == columns.id)
        .where(columns.run_id == run_id, columns.reward.is_not(None), scores.term.in_(terms))
        .where((columns.phase == TRAIN) | (columns.phase == SAMPLED) & (columns.step == 0))
        .order_by(columns.step, columns.k)
    )
    for row in connection.execute(query):
        yield row.step, row.k, row.task_id, Score(row.term, row.value, row.weight)
