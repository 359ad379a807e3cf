"""A run that is continued: what of it is deleted, and who owns it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.blobs import Blobs, write_blobs
from rlf.lineage.chain import NOTICE, LinkKind, append_link, digest_changes
from rlf.lineage.lease import LEASE_S, Lease, describe_owner, has_owner
from rlf.lineage.records import INTERRUPTED, TRAIN, AcceptedChange
from rlf.lineage.run import Texts, last_sign_of_life
from rlf.lineage.store import Store
from rlf.types import RunStatus, Score
from rlf.types.events import SAMPLED


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
