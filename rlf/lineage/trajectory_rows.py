"""Trajectories of a lineage: which are asked for, in which order, and all that hangs on one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, TextClause, func, select, text, tuple_

from rlf.core.errors import NotFoundError
from rlf.lineage import tables
from rlf.lineage.blobs import read_blobs
from rlf.lineage.payload import decode_task
from rlf.lineage.records import Asked, StoredTrajectory, TrajectoryFilter, TrajectoryOrder
from rlf.lineage.values import AnyRow, blob_names, stored_trajectory, summary
from rlf.types import Outcome


def filter_conditions(wanted: TrajectoryFilter) -> Iterator[ColumnElement[bool] | TextClause]:
    """The conditions of what is asked for."""
    columns = tables.trajectories.c
    for name in ("phase", "step", "task_id", "stop"):
        if (asked := getattr(wanted, name)) is not None:
            yield columns[name] == asked
    if wanted.succeeded is not None:
        yield func.coalesce(columns.success, 0.0) >= 1.0 if wanted.succeeded else text(tables.FAILED)
    if wanted.after_step is not None:
        yield columns.step > wanted.after_step
    if wanted.best_first:
        yield columns.advantage.is_not(None)
    if wanted.tool is not None or wanted.outcomes:
        calls = tables.tool_calls.c
        of_it: list[ColumnElement[bool]] = [] if wanted.tool is None else [calls.name == wanted.tool]
        of_it += [calls.outcome.in_(wanted.outcomes)] if wanted.outcomes else []
        if wanted.outcomes and Outcome.OK not in wanted.outcomes:  # few: found by their index, in any run
            yield columns.id.in_(select(calls.trajectory_ref).where(*of_it, text(tables.CALL_FAILED)))
        else:
            yield select(calls.name).where(calls.trajectory_ref == columns.id, *of_it).exists()
    if wanted.failure is not None:
        failures = tables.parse_failures.c
        yield (
            select(failures.kind).where(failures.trajectory_ref == columns.id, failures.kind == wanted.failure).exists()
        )


def paid_conditions(run_id: str, phase: str, threshold: float) -> tuple[ColumnElement[bool] | TextClause, ...]:
    """The conditions of trajectories that a reward paid without a success."""
    table = tables.trajectories.c
    return (table.run_id == run_id, table.phase == phase, table.reward >= threshold, text(tables.FAILED))


def order_query(query: Select[Any], order: TrajectoryOrder, last: AnyRow | None) -> Select[Any]:
    """A query in an order, from behind a row on: by key, so that late pages cost what early ones do."""
    columns = tables.trajectories.c
    if order is TrajectoryOrder.PLACE:
        key = (columns.phase, columns.step, columns.k)
        behind = None if last is None else tuple_(*key) > tuple_(last.phase, last.step, last.k)
        return (query if behind is None else query.where(behind)).order_by(*key)
    by = columns[order.value]
    query = query.where(by.is_not(None))
    if last is not None:
        value = getattr(last, order.value)
        further = by > value if order is TrajectoryOrder.WORST else by < value
        query = query.where(further | ((by == value) & (columns.id > last.id)))
    return query.order_by(by if order is TrajectoryOrder.WORST else by.desc(), columns.id)


def find_row(connection: Connection, run_id: str, k: int, step: int | None, phase: str) -> AnyRow:
    """The row of a trajectory, of the newest step without `step`. Raises NotFoundError, which says what there is."""
    table = tables.trajectories
    query = select(table).where(table.c.run_id == run_id, table.c.phase == phase, table.c.k == k)
    if step is None:
        newest = select(func.max(table.c.step)).where(table.c.run_id == run_id, table.c.phase == phase)
        query = query.where(table.c.step == newest.scalar_subquery())
    else:
        query = query.where(table.c.step == step)
    row = connection.execute(query).first()
    if row is None:
        raise NotFoundError(_what_there_is(connection, run_id, k, step, phase))
    return row


def _what_there_is(connection: Connection, run_id: str, k: int, step: int | None, phase: str) -> str:
    columns = tables.trajectories.c
    query = (
        select(columns.phase, func.min(columns.step), func.max(columns.step), func.max(columns.k))
        .where(columns.run_id == run_id)
        .group_by(columns.phase)
    )
    there = [f"{name} steps {first}..{last}, k 0..{most}" for name, first, last, most in connection.execute(query)]
    asked = f"{phase} trajectory {k}" + ("" if step is None else f" of step {step}")
    if not there:
        return f"run {run_id}: no {asked}. There are: none yet; they are stored when a step or an evaluation ends."
    return f"run {run_id}: no {asked}. There are: {'; '.join(there)}. Choose with --phase and --step."


def read_asked(connection: Connection, rows: Sequence[AnyRow]) -> list[Asked]:
    """Trajectories with their questions, of which each is read once."""
    blobs = read_blobs(connection, {row.task_sha256 for row in rows if row.task_sha256 is not None})
    questions = {name: decode_task(data, "", None).messages[-1].content for name, data in blobs.items()}
    return [Asked(summary(row), questions.get(row.task_sha256, "")) for row in rows]


def is_readable(connection: Connection, ref: int) -> bool:
    """Whether a trajectory of a lineage that was damaged can be read, or was thinned."""
    row = connection.execute(select(tables.trajectories).where(tables.trajectories.c.id == ref)).one()
    try:
        (stored,) = read_wholes(connection, [row])
    except Exception:  # noqa: BLE001 - damage shows in any way
        return False
    return stored is None or len(stored.scored.trajectory.tokens) == row.num_tokens


def read_wholes(connection: Connection, rows: Sequence[AnyRow]) -> list[StoredTrajectory | None]:
    """Trajectories with all that hangs on them; None for one that was thinned."""
    refs = [row.id for row in rows]
    payloads, scores, calls, failures = (
        _read_parts(connection, table, refs)
        for table in (tables.payloads, tables.scores, tables.tool_calls, tables.parse_failures)
    )
    kept = [row for row in rows if payloads[row.id]]
    blobs = read_blobs(connection, blob_names(kept, [call for row in kept for call in calls[row.id]]))
    return [
        stored_trajectory(row, payloads[row.id][0].data, scores[row.id], calls[row.id], failures[row.id], blobs)
        if payloads[row.id]
        else None
        for row in rows
    ]


def _read_parts(connection: Connection, table: Table, refs: Sequence[int]) -> dict[int, list[AnyRow]]:
    """Rows of a table for trajectories, by their numbers."""
    found: dict[int, list[AnyRow]] = {ref: [] for ref in refs}
    query = select(table).where(table.c.trajectory_ref.in_(refs)).order_by(*table.primary_key)
    for row in connection.execute(query):
        found[row.trajectory_ref].append(row)
    return found
