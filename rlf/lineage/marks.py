"""Tags and notes that people add to runs; and taking a run out of the lineage."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.lease import Lease, forget_lock, has_owner
from rlf.lineage.records import REMOVING, Export
from rlf.lineage.run import check_stopped
from rlf.lineage.store import Store


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


def add_export(store: Store, run_id: str, export: Export) -> None:
    """Records an exported model; replaces a record with the same path."""
    table, path = tables.exports, store.redactor.text(store.relative(export.path))
    with store.write() as connection:
        connection.execute(delete(table).where(table.c.run_id == run_id, table.c.path == path))
        connection.execute(insert(table), {"run_id": run_id, **asdict(export), "path": path})


def forget_checkpoints(store: Store, run_id: str, steps: Collection[int]) -> None:
    """Deletes the rows of a run's checkpoints of these steps."""
    table = tables.checkpoints
    with store.write() as connection:
        connection.execute(delete(table).where(table.c.run_id == run_id, table.c.step.in_(steps)))


def remove_run(store: Store, run_id: str) -> None:
    """Deletes a run and all that belongs to it; other runs keep it as the name of their parent.

    Raises:
        RlfError: no such run, or it is still running.
    """
    with store.write() as connection:
        check_stopped(store, connection, run_id)
        connection.execute(delete(tables.runs).where(tables.runs.c.id == run_id))
    forget_lock(store.lease_folder, run_id)
    store.drop_index()


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


def unfinished_removals(store: Store) -> list[str]:
    """Runs that are marked as removed, and whose removal no process works at any more; none where none can be read."""
    try:
        with store.read() as connection:
            rows = connection.execute(select(tables.runs).where(tables.runs.c.status == REMOVING)).all()
    except (RlfError, SQLAlchemyError):  # what reads the lineage next says what is damaged
        return []
    return [row.id for row in rows if not has_owner(row, store.lease_folder)]
