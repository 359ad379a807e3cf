"""Tags and notes that people add to runs, runs whose removal was begun, and the search for damage."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, text, update
from sqlalchemy.exc import DatabaseError

from rlf.lineage import tables
from rlf.lineage.blobs import is_whole, present
from rlf.lineage.chain import LinkKind, append_link
from rlf.lineage.lease import Lease
from rlf.lineage.records import IMPORTING, INTERRUPTED, REMOVING
from rlf.lineage.resumed import check_stopped
from rlf.lineage.rows import PayloadReader
from rlf.lineage.store import Store
from rlf.lineage.upkeep import cut_imports, find_fault, joined_texts, may_be_damaged, read_named


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


# Looking for damage in a lineage: all of it is read once.

_BATCH = 500

Progress = Callable[[str], None]
"""Called with what is read now, often."""


def find_damage(store: Store, progress: Progress = lambda _: None, *, is_proven: bool = False) -> Iterator[str]:
    """Faults of the database, in words; nothing where all is well. Reads all of it once.

    Args:
        is_proven: whether all trajectories are known to be as they were written, with all that hangs on them.
    """
    with store.read() as connection:
        for look in (_check_database, partial(_check_rows, is_proven=is_proven), _check_contents, _check_sums):
            yield from _run_look(look, connection, progress)
        if not is_proven:
            yield from _run_look(_check_payloads, connection, progress)
        for run_id in cut_imports(store, connection):
            yield f"run {run_id}: its import was interrupted. Import it again, or free the space with `rlf runs gc`"


def _run_look(
    look: Callable[[Connection, Progress], Iterator[str]], connection: Connection, progress: Progress
) -> Iterator[str]:
    """Findings of one check, or that it could not finish; the others continue."""
    try:
        yield from look(connection, progress)
    except (DatabaseError, sqlite3.DatabaseError, ValueError) as error:
        words = error.orig if isinstance(error, DatabaseError) else error
        name = getattr(look, "func", look).__name__.removeprefix("_")
        yield f"the file: {name} cannot be read to the end: {words}"


def _check_database(connection: Connection, progress: Progress) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        progress("the file and its indexes")
        for line in connection.execute(text("PRAGMA integrity_check")).scalars():
            if line != "ok":
                yield f"the file: {line}"
        for row in connection.execute(text("PRAGMA foreign_key_check")):
            yield f"table {row[0]}: row {row[1]} belongs to a row of {row[2]} that is missing"


def _check_rows(connection: Connection, progress: Progress, *, is_proven: bool = False) -> Iterator[str]:
    """Rows that do not hold what their table says; contents and payloads are read by looks of their own.

    SQLite reads each row and returns those that may be damaged, which is ten times faster than to look at all in
    Python. It returns the texts too, since it does not ask whether they are UTF-8 and the driver does.
    """
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, sqlite3.Connection):
        return
    read_elsewhere = {tables.blobs, tables.payloads}
    if is_proven:
        read_elsewhere |= {tables.trajectories, *tables.OF_TRAJECTORY}
    for table in tables.metadata.sorted_tables:
        if table not in read_elsewhere:
            progress(f"table {table.name}")
            columns = [column.name for column in table.columns]
            names = ", ".join(f'"{name}"' for name in columns)
            suspect = f'SELECT {names} FROM "{table.name}"'
            try:
                deque(driver.execute(f'SELECT {joined_texts(table)} FROM "{table.name}"'), maxlen=0)
                suspect += f" WHERE {may_be_damaged(table)}"
            except sqlite3.OperationalError:
                pass  # reading them one by one names the column
            for row in driver.execute(suspect):
                fault = find_fault(table, dict(zip(columns, row, strict=True)))
                if fault is not None:
                    yield f"table {table.name}: a row is damaged: {fault}"


def _rows_of(connection: Connection, query: Select[Any]) -> Iterator[Sequence[Any]]:
    """Rows of a query without parameters, past SQLAlchemy where that is SQLite's: its rows cost more than reading."""
    driver = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        return iter(driver.execute(str(query.compile(dialect=connection.dialect))))
    return iter(connection.execution_options(yield_per=_BATCH).execute(query))


def _check_contents(connection: Connection, progress: Progress) -> Iterator[str]:
    for number, (sha256, data) in enumerate(_rows_of(connection, select(tables.blobs.c.sha256, tables.blobs.c.data))):
        if number % _BATCH == 0:
            progress(f"content {number:,}")
        if not is_whole(sha256, data):
            yield f"blob {sha256[:12]}: its content does not match its hash"
    named = read_named(connection) - _cut_originals(connection)
    for name in sorted(named - present(connection, named)):
        yield f"blob {name[:12]}: a row names it, but it is missing"


def _cut_originals(connection: Connection) -> set[str]:
    """Hashes of results that were too large to keep: names without a content."""
    column = tables.tool_calls.c.original_sha256
    return set(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())


def _check_payloads(connection: Connection, progress: Progress) -> Iterator[str]:
    trajectories, payloads = tables.trajectories.c, tables.payloads.c
    query = select(trajectories.trajectory_id, trajectories.run_id, trajectories.num_tokens, payloads.data)
    joined = query.join(tables.payloads, payloads.trajectory_ref == trajectories.id)
    total = connection.execute(select(func.count()).select_from(tables.payloads)).scalar_one()
    payload = PayloadReader()
    for number, (trajectory_id, run_id, num_tokens, data) in enumerate(_rows_of(connection, joined)):
        if number % _BATCH == 0:
            progress(f"trajectory {number:,} of {total:,}")
        try:
            whole = payload.num_tokens(data) == num_tokens
        except Exception:  # noqa: BLE001 - damage shows in any way
            whole = False
        if not whole:
            yield f"run {run_id}: trajectory {trajectory_id}: its tokens cannot be read"


def _check_sums(connection: Connection, _: Progress) -> Iterator[str]:
    trajectories, sums = tables.trajectories.c, tables.collections.c
    unfinished = select(tables.runs.c.id).where(tables.runs.c.status == IMPORTING)
    counted = (
        select(trajectories.run_id, trajectories.phase, trajectories.step, func.count().label("num"))
        .where(trajectories.phase != INTERRUPTED, trajectories.run_id.not_in(unfinished))
        .group_by(trajectories.run_id, trajectories.phase, trajectories.step)
        .subquery()
    )
    place = (sums.run_id == counted.c.run_id) & (sums.phase == counted.c.phase) & (sums.step == counted.c.step)
    query = select(counted, sums.num_trajectories).outerjoin(tables.collections, place)
    for row in connection.execute(query.where(counted.c.num != func.coalesce(sums.num_trajectories, -1))):
        num_trajectories = row.num_trajectories
        yield f"run {row.run_id}: {row.phase} step {row.step} has {row.num} trajectories and says {num_trajectories}"
