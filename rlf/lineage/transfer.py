"""Runs from one lineage to another: export, import and merge are the same copy between two databases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update

from rlf.core import RlfError
from rlf.core.files import check_run_id
from rlf.lineage import tables
from rlf.lineage.blobs import copy_blobs
from rlf.lineage.inserts import insert_rows
from rlf.lineage.lease import Lease, describe_owner, has_owner
from rlf.lineage.records import HIDDEN, IMPORTING
from rlf.lineage.store import Store
from rlf.lineage.values import blob_names

_BATCH = 1000
"""Trajectories in one transaction."""
_PAUSE_S = 0.05
"""Between two transactions: a writer that waits for the lock looks ten times a second."""


def copy_run(source: Store, target: Store, run_id: str) -> bool:
    """Copies one run with all that belongs to it; False where the target has it already.

    The target's lock is held for a batch at a time, so that what runs there can write in between; the run is shown once
    all of it is there. What a copy that was cut off has left is replaced. Checkpoints and exports stay where they are:
    their rows name path and hash.

    Raises:
        RlfError: the target has another run of that id, or it is not the name of a folder.
    """
    check_run_id(run_id)
    placed = _Placed(source, target)
    with source.read() as reading:
        row = dict(reading.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one()._mapping)
        lease = _insert_run(target, placed.row(row, "folder"))
        if lease is None:
            return False
        try:
            _copy_trajectories(reading, target, lease)
            with target.write() as writing:
                lease.check(writing)
                copy_blobs(reading, writing, _source_texts(reading, row))
                for table in tables.OF_RUN:
                    _copy_rows(reading, writing, table, run_id, placed)
                shown = {name: row[name] for name in ("status", *lease.columns())}
                writing.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(shown))
            lease.is_over = True
        finally:
            lease.release()
    return True


def _insert_run(target: Store, row: dict[str, Any]) -> Lease | None:
    """Writes a run's own row, which nothing shows yet; None where the target has the run."""
    runs, run_id = tables.runs, row["id"]
    with target.write() as writing:
        there = writing.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
        if there is not None and there.status not in HIDDEN:
            _refuse_another_state(target, there, row)
            return None
        if there is not None and has_owner(there, target.lease_folder):
            raise RlfError(
                f"run {run_id}: {describe_owner(there)}, is importing or removing it. Wait for that, then try again."
            )
        writing.execute(delete(runs).where(runs.c.id == run_id))
        lease = Lease(run_id, target.lease_folder)
        writing.execute(insert(runs), row | lease.columns() | {"status": IMPORTING})
    return lease


def _refuse_another_state(target: Store, there: Row[Any], row: dict[str, Any]) -> None:
    if (there.plan_hash, there.last_step) != (row["plan_hash"], row["last_step"]):
        raise RlfError(
            f"run {there.id}: {target.place} has another state of it, at step {there.last_step} instead of "
            f"{row['last_step']}. Remove that run first with `rlf runs rm {there.id}`."
        )


class _Placed:
    """Rows as the target stores them: paths that start at the source's folder are named from the target's."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target

    def row(self, row: dict[str, Any], column: str = "path") -> dict[str, Any]:
        return row | {column: self._target.relative(self._source.absolute(row[column]))}


def _source_texts(reading: Connection, run: dict[str, Any]) -> set[str]:
    """Names of the patch and the texts of source files that a run's rows refer to."""
    found = {run["patch_sha256"]}
    for table in (tables.files, tables.changes):
        found.update(reading.execute(select(table.c.text_sha256).where(table.c.run_id == run["id"])).scalars())
    return found - {None}


def _copy_rows(reading: Connection, writing: Connection, table: Table, run_id: str, placed: _Placed) -> None:
    rows = [dict(row._mapping) for row in reading.execute(select(table).where(table.c.run_id == run_id))]
    if table in (tables.checkpoints, tables.exports):
        rows = [placed.row(row) for row in rows]
    if rows:
        writing.execute(insert(table), [_without_number(table, row) for row in rows])


def _copy_trajectories(reading: Connection, target: Store, lease: Lease) -> None:
    columns = tables.trajectories.c
    mine = select(columns.id).where(columns.run_id == lease.run_id).order_by(columns.id)
    ids = list(reading.execute(mine).scalars())
    for start in range(0, len(ids), _BATCH):
        with target.write() as writing:
            lease.beat(writing)
            _copy_batch(reading, writing, ids[start : start + _BATCH])
        time.sleep(_PAUSE_S)


def _copy_batch(reading: Connection, writing: Connection, ids: Sequence[int]) -> None:
    table = tables.trajectories
    place = (table.c.phase, table.c.step, table.c.k)
    rows = reading.execute(select(table).where(table.c.id.in_(ids))).all()
    new_rows = [_without_number(table, dict(row._mapping)) for row in rows]
    stored = writing.execute(insert(table).returning(table.c.id, *place), new_rows).all()
    new_by_place = {(row.phase, row.step, row.k): row.id for row in stored}
    new_by_old = {row.id: new_by_place[row.phase, row.step, row.k] for row in rows}
    parts = {part: _read_parts(reading, part, ids) for part in tables.OF_TRAJECTORY}
    copy_blobs(reading, writing, blob_names(rows, parts[tables.tool_calls]))
    for part, found in parts.items():
        rows_of_part = ((new_by_old[row[0]], *row[1:]) for row in found)
        insert_rows(writing, insert(part), [column.name for column in part.c], rows_of_part)


def _read_parts(reading: Connection, table: Table, ids: Sequence[int]) -> Sequence[Any]:
    return reading.execute(select(table).where(table.c.trajectory_ref.in_(ids))).all()


def _without_number(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """The row without a number that each database gives for itself."""
    return {name: value for name, value in row.items() if name != "id"} if table is not tables.runs else row
