"""The one writer of a run: takes events on the training thread, writes each as one transaction on a thread of its own.

Events are written in order, while this process owns the run. After a failure nothing more is written, so that a run's
rows have no hole, but for the reason.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from rlf.lineage import tables
from rlf.lineage.blobs import Blobs, write_blobs
from rlf.lineage.chain import (
    CALL,
    CHECKPOINT,
    END,
    FAILURE,
    HEAD,
    MEASURED,
    NOTICE,
    SCORE,
    LinkKind,
    Values,
    append_link,
    digest_costs,
    digest_placed,
    digest_plain,
    digest_sums,
    plain_number,
)
from rlf.lineage.costs import add_costs, keep_unrecorded, spent_by, unrecorded_before
from rlf.lineage.lease import LeaseLost
from rlf.lineage.records import INTERRUPTED, TRAIN, FilesRead
from rlf.lineage.rows import (
    EncodedTrajectory,
    Row,
    collection_row,
    encode_task,
    encode_trajectory,
    metrics_json,
    tool_total_rows,
)
from rlf.lineage.store import Store, insert_rows
from rlf.types import (
    CheckpointSaved,
    EvaluationFinished,
    Interrupted,
    Notice,
    RunEvent,
    RunFinished,
    RunStatus,
    Scored,
    StepFinished,
)

logger = logging.getLogger(__name__)

_REF = "trajectory_ref"
_MAX_PENDING = 16
"""Events that may wait to be written; then the caller waits, so that memory stays bounded."""


class Recorder:
    """An EventSink that keeps a run's events in its store. Close it, or use it as a context manager.

    A failure of the writer is raised on the calling thread by every later call, `flush` and `close`.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        unrecorded: Callable[[], Mapping[str, float]] = dict,
        *,
        is_played: bool = False,
    ) -> None:
        """Takes a run that this process starts or resumes with the same store before the first event is written.

        Args:
            unrecorded: what this process has spent so far that no event's trajectories have; `requests`, `cost_usd`.
            is_played: whether the results of tools come from a recording, so that they have cost nothing.
        """
        self._store = store
        self._run_id = run_id
        self._unrecorded = unrecorded
        self._is_played = is_played
        self._before: Mapping[str, float] | None = None
        """What earlier processes spent so; None before the first write."""
        self._kept: Mapping[str, float] = {}
        """What is written of `unrecorded`."""
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lineage-writer")
        self._pending: deque[Future[None]] = deque()
        self._failure: BaseException | None = None

    def __call__(self, event: RunEvent | FilesRead) -> None:
        """Queues one event; returns before it is written, unless too many wait."""
        # Done ones are awaited too, which costs nothing and raises what went wrong as early as can be.
        while self._pending and (self._pending[0].done() or len(self._pending) >= _MAX_PENDING):
            self._await_oldest()
        self._raise_failure()
        self._pending.append(self._writer.submit(self._write_event, event, time.time()))

    def note_spending(self) -> None:
        """Queues the cost since the last write, so that it is recorded even if the process is killed."""
        # Only where nothing waits: an event that is written anyway takes the cost along, and a note that is queued
        # behind it would hold up the next step for nothing.
        is_idle = self._failure is None and (not self._pending or self._pending[-1].done())
        if is_idle and self._unrecorded() != self._kept:
            self._pending.append(self._writer.submit(self._write_event, None, time.time()))

    def flush(self) -> None:
        """Returns when everything queued is committed."""
        while self._pending:
            self._await_oldest()
        self._raise_failure()

    def close(self) -> None:
        """Writes what is queued and ends the writer."""
        self._shut_down()
        self._raise_failure()

    def fail(self, error: BaseException) -> None:
        """Stops all writing: every later call raises the error."""
        self._failure = self._failure or error  # the first one is the reason; later ones follow from it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return self.close()
        self._shut_down()
        if self._failure is not None and self._failure is not error:
            logger.error("run %s: the lineage is incomplete: %s", self._run_id, self._failure)
        return None

    def _shut_down(self) -> None:
        """Ends the writer; after a failure the reason is recorded as the run's end, where that can still be done."""
        # The lease may be lost: then the row is another process's, and not even the reason is written.
        self._writer.shutdown()
        if self._failure is None or isinstance(self._failure, LeaseLost):
            return
        reason = str(self._failure) or type(self._failure).__name__
        with suppress(Exception):  # the database may be what failed
            values = {"status": RunStatus.FAILED, "finished": time.time(), "error": self._store.redactor.text(reason)}
            with self._store.write() as connection:
                self._store.leases[self._run_id].check(connection)
                connection.execute(update(tables.runs).where(tables.runs.c.id == self._run_id).values(values))
                query = select(*(tables.runs.c[name] for name in END.columns)).where(tables.runs.c.id == self._run_id)
                append_link(connection, self._run_id, LinkKind.END, {}, END(connection.execute(query).one()))

    def _await_oldest(self) -> None:
        wait([self._pending[0]])  # Forgotten only then: Ctrl-C here must not hide it from a later flush.
        self._pending.popleft()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write_event(self, event: RunEvent | FilesRead | None, now: float) -> None:
        if self._failure is not None:
            return
        try:
            # One transaction for an event with its cost and the check of the owner: no reader sees a step without its
            # trajectories, no cost is counted twice after a kill, and who lost the run writes none of it.
            with self._store.write() as connection:
                self._store.leases[self._run_id].check(connection)
                self._store.leases[self._run_id].count_jump(connection)
                if event is not None:
                    _Transaction(connection, self._store, self._run_id, now, self._is_played).write(event)
                self._keep_spending(connection)
        except BaseException as error:
            self.fail(error)
            raise
        # Behind the commit: the lock's file must stay as a sign of an end that was not recorded.
        self._store.leases[self._run_id].is_over = isinstance(event, RunFinished)

    def _keep_spending(self, connection: Connection) -> None:
        # Once, in the first transaction: what this process has spent in all is added to that, never to its own notes.
        if self._before is None:
            self._before = unrecorded_before(connection, self._run_id)
        usage = dict(self._unrecorded())
        if usage != self._kept:
            keep_unrecorded(connection, self._run_id, self._before, usage)
            self._kept = usage


class _Transaction:
    """Writes one event of one run on an open connection."""

    def __init__(self, connection: Connection, store: Store, run_id: str, now: float, is_played: bool) -> None:
        self._is_played = is_played
        self._connection = connection
        self._store = store
        self._redactor = store.redactor
        self._run_id = run_id
        self._now = now
        self._costs: str | None = None
        """The digest of the run's costs, where the event changes them."""

    def write(self, event: RunEvent | FilesRead) -> None:
        match event:
            case FilesRead():
                self._write_files(event)
            case StepFinished():
                measured = self._write_measured(tables.steps, {"step": event.step}, event.metrics)
                written = self._write_trajectories(
                    TRAIN, event.step, event.trajectories, event.advantages, event.encoded
                )
                self._update_run(last_step=event.step)
                self._link(LinkKind.STEP, {"phase": TRAIN, "step": event.step}, measured, written)
            case EvaluationFinished():
                self._write_evaluation(event)
            case Interrupted():
                self._write_interruption(event)
            case CheckpointSaved():
                self._write_checkpoint(event)
            case Notice():
                self._write_notice(event)
            case RunFinished():
                error = self._redactor.optional(event.error)
                row = {"status": event.status, "finished": self._now, "error": error, "last_step": event.step}
                self._update_run(**row)
                self._link(LinkKind.END, {}, END.of(row))

    def _write_evaluation(self, event: EvaluationFinished) -> None:
        measured = self._write_measured(tables.evaluations, {"step": event.step, "mode": event.mode}, event.metrics)
        unknown = [None] * len(event.trajectories)
        written = self._write_trajectories(event.mode, event.step, event.trajectories, unknown, event.encoded)
        self._link(LinkKind.EVALUATION, {"phase": event.mode, "step": event.step}, measured, written)

    def _write_measured(self, table: Table, key: Row, metrics: Mapping[str, float]) -> bytes:
        values = {"metrics": metrics_json(metrics, self._redactor), "finished": self._now}
        self._replace_row(table, key, **values)
        return MEASURED.of(values)

    def _write_checkpoint(self, event: CheckpointSaved) -> None:
        """Marks those about to be deleted in the same transaction, so that no checkpoint listed as kept is missing."""
        path, table = self._redactor.text(self._store.relative(event.path)), tables.checkpoints
        row = {"step": event.step, "path": path, "sha256": event.sha256, "saved": self._now}
        self._replace_row(table, {"step": event.step}, **row)
        if event.kept is not None:
            going = (table.c.run_id == self._run_id, table.c.step.not_in(event.kept), table.c.dropped.is_(None))
            self._connection.execute(update(table).where(*going).values(dropped=self._now))
        place = {"step": event.step, "kept": event.kept}
        self._link(LinkKind.CHECKPOINT, place, digest_placed(CHECKPOINT, row))

    def _write_interruption(self, event: Interrupted) -> None:
        """Adds to what earlier stops of the same step cut off; no sums are kept."""
        place, columns = {"run_id": self._run_id, "phase": INTERRUPTED, "step": event.step}, tables.trajectories.c
        last = self._connection.execute(select(func.max(columns.k)).filter_by(**place)).scalar()
        if event.trajectories:
            first = 0 if last is None else last + 1
            self._add_costs(INTERRUPTED, event.trajectories)
            unknown = [None] * len(event.trajectories)
            written = self._add_trajectories(place, first, event.trajectories, unknown, ())
            self._link(LinkKind.INTERRUPTED, {"phase": INTERRUPTED, "step": event.step, "first": first}, written)

    def _write_notice(self, event: Notice) -> None:
        row = {"time": self._now, "level": event.level}
        row |= {"text": self._redactor.text(event.text), "data": self._redactor.json(event.data)}
        self._connection.execute(insert(tables.events), {"run_id": self._run_id, **row})
        self._link(LinkKind.NOTICE, {}, NOTICE.of(row))

    def _link(self, kind: LinkKind, place: Row, *digests: bytes) -> None:
        costs = {} if self._costs is None else {"costs": self._costs}
        append_link(self._connection, self._run_id, kind, place | costs, *digests)

    def _write_files(self, event: FilesRead) -> None:
        """Adds those that are new to the run; what it recorded before stays what it is compared with."""
        for file, is_new in (*((each, True) for each in event.new), *((each, False) for each in event.changed)):
            key = {"run_id": self._run_id, "role": file.role, "path": self._redactor.text(file.path)}
            if not is_new:
                self._connection.execute(delete(tables.files).filter_by(**key))
            elif self._connection.execute(select(tables.files.c.sha256).filter_by(**key)).first() is None:
                self._connection.execute(insert(tables.files), key | {"sha256": file.sha256, "text_sha256": None})

    def _write_trajectories(
        self,
        phase: str,
        step: int,
        trajectories: Sequence[Scored],
        advantages: Sequence[float | None],
        encoded: Sequence[object],
    ) -> bytes:
        """Writes the trajectories of a step or an evaluation with their sums; returns the digests."""
        place = {"run_id": self._run_id, "phase": phase, "step": step}
        # Replaced and not added to: after a kill an engine may report a step that is recorded already.
        for replaced in (tables.trajectories, tables.collections, tables.tool_totals):
            self._connection.execute(delete(replaced).filter_by(**place))
        if not trajectories:
            return digest_sums((), ())
        self._add_costs(phase, trajectories)
        written = self._add_trajectories(place, 0, trajectories, advantages, encoded)
        sums = collection_row(trajectories)
        self._connection.execute(insert(tables.collections), place | sums)
        if totals := tool_total_rows(trajectories, self._redactor):
            self._connection.execute(insert(tables.tool_totals), [place | row for row in totals])
        return digest_sums([sums], totals) + written

    def _add_costs(self, phase: str, trajectories: Sequence[Scored]) -> None:
        if spent := spent_by(trajectories, self._redactor, is_played=self._is_played):
            add_costs(self._connection, self._run_id, phase, spent)
            self._costs = digest_costs(self._connection, self._run_id)

    def _add_trajectories(
        self,
        place: Row,
        first: int,
        trajectories: Sequence[Scored],
        advantages: Sequence[float | None],
        made: Sequence[object],
    ) -> bytes:
        """Writes trajectories whose positions count from `first`, with all that hangs on them; returns the digests."""
        blobs = Blobs()
        encoded = self._encode_all(trajectories, made or [None] * len(trajectories), blobs)
        pairs = enumerate(zip(encoded, map(plain_number, advantages), strict=True), first)
        rows = [(k, advantage, *one.head) for k, (one, advantage) in pairs]
        at = tuple(place.values())
        self._insert_rows(tables.trajectories, (*place, "k", "advantage", *HEAD), ((*at, *row) for row in rows))
        # Asked back by place: inserting many rows returns no numbers in their order on every database.
        refs = self._numbers(place, first)
        self._insert_rows(
            tables.payloads, (_REF, "data"), ((ref, one.payload) for ref, one in zip(refs, encoded, strict=True))
        )
        for table, names, parts in (
            (tables.scores, SCORE.columns, [one.scores for one in encoded]),
            (tables.tool_calls, CALL.columns, [one.calls for one in encoded]),
            (tables.parse_failures, FAILURE.columns, [one.failures for one in encoded]),
        ):
            hanging = ((ref, *row) for ref, part in zip(refs, parts, strict=True) for row in part)
            self._insert_rows(table, (_REF, *names), hanging)
        # Last, when every row has named its contents: those that rows share are compressed and written once.
        write_blobs(self._connection, blobs.data_by_hash)
        return b"".join(digest_plain([row]) + one.digests for row, one in zip(rows, encoded, strict=True))

    def _encode_all(
        self, trajectories: Sequence[Scored], made: Sequence[object], blobs: Blobs
    ) -> list[EncodedTrajectory]:
        """The rows of trajectories, made here where they are not made yet; the rollouts of a group share their task."""
        names, encoded = dict[int, str](), list[EncodedTrajectory]()
        for scored, known in zip(trajectories, made, strict=True):
            if isinstance(known, EncodedTrajectory):
                blobs.data_by_hash.update(known.contents)
                encoded.append(known)
                continue
            task = scored.trajectory.task
            if id(task) not in names:
                names[id(task)] = blobs.keep(encode_task(task, self._redactor))
            encoded.append(encode_trajectory(scored, self._redactor, blobs, names[id(task)]))
        return encoded

    def _numbers(self, place: Row, first: int) -> list[int]:
        """The numbers of the trajectories at a place, in their order from `first` on."""
        table = tables.trajectories.c
        query = select(table.id).filter_by(**place).where(table.k >= first).order_by(table.k)
        return list(self._connection.execute(query).scalars())

    def _insert_rows(self, table: Table, columns: Sequence[str], rows: Iterable[Values]) -> None:
        insert_rows(self._connection, insert(table), columns, rows)

    def _replace_row(self, table: Table, key: Row, **values: object) -> None:
        key = {"run_id": self._run_id, **key}
        self._connection.execute(delete(table).filter_by(**key))
        self._connection.execute(insert(table), key | values)

    def _update_run(self, **values: object) -> None:
        self._connection.execute(update(tables.runs).where(tables.runs.c.id == self._run_id).values(values))
