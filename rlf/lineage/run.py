"""The start of a run and of its resumption: the two writes that come before any event, and make this process its owner.

Both leave a lease with the store, which gives it back when it is closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Any, Self

from sqlalchemy import Connection, Row, insert, select
from sqlalchemy.exc import SQLAlchemyError

from rlf.core import RlfError
from rlf.core.redact import Redactor
from rlf.lineage import tables
from rlf.lineage.blobs import Blobs, write_blobs
from rlf.lineage.chain import FILES, RUN, LinkKind, append_link, read_link
from rlf.lineage.lease import BEAT_S, Lease, LeaseLost, has_owner
from rlf.lineage.records import REMOVING, FileRecord, RunRecord
from rlf.lineage.store import Store
from rlf.types import RunStatus

Texts = Mapping[tuple[str, str], str]
"""Texts of small source files by role and path."""
_NONE: Texts = MappingProxyType({})


def start_run(store: Store, record: RunRecord, patch: str | None = None, texts: Texts = _NONE) -> None:
    """Writes a new run as running in this process, with its files.

    Args:
        patch: what the code differs by from its commit; kept, and named by the record that is read back.
        texts: what is kept of the record's files, so that a later change of them can be shown.
    """
    redactor, blobs = store.redactor, Blobs()
    patch_sha256 = None if patch is None else blobs.keep(redactor.text(patch).encode())
    files = [_file_row(file, record.id, texts, blobs, redactor) for file in record.files]
    row = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "files"}
    row |= {name: redactor.json(row[name]) for name in ("plan", "host", "packages")}
    row |= {name: redactor.optional(row[name]) for name in ("name", "command", "home", "cwd")}
    row |= {"folder": redactor.text(store.relative(record.folder)), "patch_sha256": patch_sha256}
    row |= {"status": RunStatus.RUNNING, "last_step": 0, "idle_s": 0.0}
    # The lock comes first: a row that says running, whose lock is free, is shown as interrupted by any other process.
    lease = Lease(record.id, store.lease_folder)
    with store.holding(lease), store.write() as connection:
        write_blobs(connection, blobs.data_by_hash)
        connection.execute(insert(tables.runs), row | lease.columns())
        if files:
            connection.execute(insert(tables.files), files)
        parent = None if record.parent_id is None else read_link(connection, record.parent_id)
        place = {} if parent is None else {"parent": record.parent_id, "head": parent.sha256}
        sources = sorted(files, key=lambda row: (row["role"], row["path"]))
        digests = *(part.of(row) for part in RUN.values()), FILES.of(*sources)
        append_link(connection, record.id, LinkKind.START, place, *digests)


def _file_row(file: FileRecord, run_id: str, texts: Texts, blobs: Blobs, redactor: Redactor) -> dict[str, Any]:
    text = texts.get((file.role, file.path))
    kept = None if text is None else blobs.keep(redactor.text(text).encode())
    return {"run_id": run_id, **asdict(file), "path": redactor.text(file.path), "text_sha256": kept}


def last_sign_of_life(connection: Connection, row: Row[Any]) -> float:
    """When a run ended, as far as the lineage knows."""
    if row.finished is not None:
        return float(row.finished)
    table = tables.steps
    newest = connection.execute(
        select(table.c.finished).where(table.c.run_id == row.id).order_by(table.c.step.desc()).limit(1)
    ).scalar()
    return max(float(row.heartbeat or 0.0), float(newest or 0.0), float(row.started))


# The sign of life of a run's owner, and its look whether the run is still its own.

logger = logging.getLogger(__name__)


_JOIN_S = 1.0
"""Longer than a beat takes, unless another process holds the lineage; then the thread is left to its wait."""


class Heartbeat:
    """Writes a run's heartbeat on a thread of its own while the block runs."""

    def __init__(self, store: Store, run_id: str, lose: Callable[[LeaseLost], object]) -> None:
        """Takes a run that this process has started or resumed with the same store.

        Args:
            lose: called once, on that thread, when the lineage or the run is no longer this process's to write.
        """
        self._store = store
        self._lease = store.leases[run_id]
        self._lose = lose
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_ended, name="lineage-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        # With a limit: the thread may wait for the database's lock, and at worst it writes one more heartbeat.
        self._thread.join(_JOIN_S)

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                with self._store.write() as connection:
                    self._lease.beat(connection)
            except LeaseLost as error:
                self._lose(error)
                return
            except RlfError as error:  # the next step ends the run for it, unless it is over by then
                logger.warning("run %s: no heartbeat could be written: %s", self._lease.run_id, error)


def unfinished_removals(store: Store) -> list[str]:
    """Runs that are marked as removed, and whose removal no process works at any more; none where none can be read."""
    try:
        with store.read() as connection:
            rows = connection.execute(select(tables.runs).where(tables.runs.c.status == REMOVING)).all()
    except (RlfError, SQLAlchemyError):  # what reads the lineage next says what is damaged
        return []
    return [row.id for row in rows if not has_owner(row, store.lease_folder)]
