"""Runs from one lineage to another: export, import and merge are the same copy between two databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from rlf.core import RlfError
from rlf.core.inside import check_run_id
from rlf.lineage import tables
from rlf.lineage.blobs import read_blobs, write_blobs
from rlf.lineage.store import Store
from rlf.lineage.values import blob_names

_OF_RUN = (
    tables.files,
    tables.changes,
    tables.tags,
    tables.notes,
    tables.exports,
    tables.steps,
    tables.evaluations,
    tables.collections,
    tables.tool_totals,
    tables.checkpoints,
    tables.events,
)
_OF_TRAJECTORY = (tables.payloads, tables.tool_calls, tables.scores, tables.parse_failures)
_BATCH = 200


def copy_run(source: Store, target: Store, run_id: str) -> bool:
    """Copies one run with all that hangs on it, in one transaction; False where the target has it already.

    Checkpoints and exports stay where they are: their rows tell path and hash.

    Raises:
        RlfError: the target has another run of that id, or it is not the name of a folder.
    """
    check_run_id(run_id)
    with source.read() as reading, target.write() as writing:
        row = dict(reading.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one()._mapping)
        there = writing.execute(select(tables.runs).where(tables.runs.c.id == run_id)).first()
        if there is not None:
            if (there.plan_hash, there.last_step) == (row["plan_hash"], row["last_step"]):
                return False
            raise RlfError(
                f"run {run_id}: {target.place} has another state of it, at step {there.last_step} and not "
                f"{row['last_step']}. Remove that one first with `rlf runs rm {run_id}`."
            )
        placed = _Placed(source, target)
        writing.execute(insert(tables.runs), placed.row(row, "folder"))
        write_blobs(writing, read_blobs(reading, _source_texts(reading, row)))
        for table in _OF_RUN:
            _copy_rows(reading, writing, table, run_id, placed)
        _copy_trajectories(reading, writing, run_id)
    return True


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
    _insert(writing, table, [_without_number(table, row) for row in rows])


def _copy_trajectories(reading: Connection, writing: Connection, run_id: str) -> None:
    table = tables.trajectories
    ids = list(reading.execute(select(table.c.id).where(table.c.run_id == run_id).order_by(table.c.id)).scalars())
    for start in range(0, len(ids), _BATCH):
        _copy_batch(reading, writing, ids[start : start + _BATCH])


def _copy_batch(reading: Connection, writing: Connection, ids: Sequence[int]) -> None:
    table = tables.trajectories
    rows = reading.execute(select(table).where(table.c.id.in_(ids))).all()
    new_by_old = {
        row.id: writing.execute(
            insert(table).returning(table.c.id), _without_number(table, dict(row._mapping))
        ).scalar()
        for row in rows
    }
    parts = {part: _parts(reading, part, ids) for part in _OF_TRAJECTORY}
    write_blobs(writing, read_blobs(reading, blob_names(rows, parts[tables.tool_calls])))
    for part, found in parts.items():
        _insert(writing, part, [{**row._mapping, "trajectory_ref": new_by_old[row.trajectory_ref]} for row in found])


def _parts(reading: Connection, table: Table, ids: Sequence[int]) -> Sequence[Any]:
    return reading.execute(select(table).where(table.c.trajectory_ref.in_(ids))).all()


def _insert(writing: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        writing.execute(insert(table), rows)


def _without_number(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """The row without a number that each database gives for itself."""
    return {name: value for name, value in row.items() if name != "id"} if table is not tables.runs else row
