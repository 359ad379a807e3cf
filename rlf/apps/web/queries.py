"""What the page alone asks of a lineage."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, TextClause, case, func, literal, select, text, tuple_

from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import HIDDEN, TRAIN, TrajectoryFilter, TrajectoryLine, TrajectorySummary
from rlf.lineage.values import AnyRow, filter_conditions, find_row, read_asked, summary, value


class TrajectoryOrder(StrEnum):
    """In which order trajectories are listed."""

    PLACE = "place"
    """By phase, step and position."""
    WORST = "reward"
    """By reward, the lowest first; those without one are left out."""
    BEST = "advantage"
    """By advantage, the highest first; those without one are left out."""


@dataclass(frozen=True, slots=True)
class Pay:
    """Rewards of a step's trajectories that have one and of which is known whether they succeeded."""

    step: int
    reward: float
    """Their mean."""
    success: float
    """Their mean."""
    num_right: int
    num_wrong: int
    right_reward: float
    """Sum over those that succeeded."""


def read_plan_texts(reader: Reader, run_ids: Collection[str]) -> dict[str, str]:
    """The plans of runs as JSON, by id."""
    columns = tables.runs.c
    query = select(columns.id, columns.plan).where(columns.status.not_in(HIDDEN), columns.id.in_(run_ids))
    return {row.id: row.plan for row in _fetch_all(reader, query)}


def read_page(
    reader: Reader,
    run_id: str,
    wanted: TrajectoryFilter,
    order: TrajectoryOrder,
    after: tuple[str, int, int] | None,
    limit: int,
) -> list[TrajectoryLine]:
    """Trajectories from behind one on, with their questions; `limit` of the filter is not looked at.

    Args:
        after: phase, step and position of the one before the first that is wanted.
    """
    table = tables.trajectories
    query = select(table).where(table.c.run_id == run_id, *filter_conditions(wanted))
    with reader.store.read() as connection:
        last = None if after is None else find_row(connection, run_id, after[2], after[1], after[0])
        return read_asked(connection, connection.execute(_order_query(query, order, last).limit(limit)).all())


def _order_query(query: Select[Any], order: TrajectoryOrder, last: AnyRow | None) -> Select[Any]:
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


def find_neighbours(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, place: tuple[str, int, int]
) -> tuple[TrajectorySummary | None, TrajectorySummary | None]:
    """The trajectories before and behind a place among those that a filter wants."""
    table = tables.trajectories
    key, here = tuple_(table.c.phase, table.c.step, table.c.k), tuple_(*place)
    query = select(table).where(table.c.run_id == run_id, *filter_conditions(wanted)).limit(1)
    order = (table.c.phase, table.c.step, table.c.k)
    with reader.store.read() as connection:
        before = connection.execute(query.where(key < here).order_by(*(one.desc() for one in order))).first()
        behind = connection.execute(query.where(key > here).order_by(*order)).first()
    return (None if before is None else summary(before), None if behind is None else summary(behind))


def read_pay(reader: Reader, run_id: str, phase: str) -> list[Pay]:
    """Reward and success of the trajectories of each step that have both, in order."""
    table = tables.trajectories.c
    right = table.success >= 1.0
    query = (
        select(
            table.step,
            func.avg(table.reward).label("reward"),
            func.avg(table.success).label("success"),
            func.sum(case((right, 1), else_=0)).label("num_right"),
            func.sum(case((right, 0), else_=1)).label("num_wrong"),
            func.sum(case((right, table.reward), else_=0.0)).label("right_reward"),
        )
        .where(table.run_id == run_id, table.phase == phase, table.reward.is_not(None), table.success.is_not(None))
        .group_by(table.step)
        .order_by(table.step)
    )
    return [value(Pay, row) for row in _fetch_all(reader, query)]


def count_paid(reader: Reader, run_id: str, phase: str, threshold: float) -> dict[int, int]:
    """How many trajectories of each step did not succeed and have at least a reward."""
    table = tables.trajectories.c
    query = select(table.step, func.count().label("number")).where(*_paid_conditions(run_id, phase, threshold))
    return {row.step: row.number for row in _fetch_all(reader, query.group_by(table.step))}


def read_paid(reader: Reader, run_id: str, phase: str, threshold: float, limit: int) -> list[TrajectoryLine]:
    """Those trajectories, the highest reward first, then the latest."""
    table = tables.trajectories
    query = select(table).where(*_paid_conditions(run_id, phase, threshold))
    with reader.store.read() as connection:
        rows = connection.execute(query.order_by(table.c.reward.desc(), table.c.step.desc()).limit(limit)).all()
        return read_asked(connection, rows)


def _paid_conditions(run_id: str, phase: str, threshold: float) -> tuple[ColumnElement[bool] | TextClause, ...]:
    """The conditions of trajectories that a reward paid without a success."""
    table = tables.trajectories.c
    is_wrong = (table.success.is_not(None), text(tables.FAILED))  # one whose success is not known is neither
    return (table.run_id == run_id, table.phase == phase, table.reward >= threshold, *is_wrong)


def read_latencies(reader: Reader, run_id: str) -> list[tuple[int, str, float]]:
    """Step, tool and seconds of each training call that was made, the caller's wait in; no tool: a trajectory."""
    of, calls = tables.trajectories.c, tables.tool_calls.c
    here = select(of.step).where(of.run_id == run_id, of.phase == TRAIN)
    called = here.join(tables.tool_calls, calls.trajectory_ref == of.id).where(calls.cached.is_(False))
    rows = called.add_columns(calls.name, calls.queue_s + calls.run_s)
    with reader.store.read() as connection:
        found = [*connection.execute(here.add_columns(literal(""), of.duration_s)), *connection.execute(rows)]
    return [(step, name, seconds) for step, name, seconds in found]


def _fetch_all(reader: Reader, query: Select[Any]) -> Sequence[AnyRow]:
    with reader.store.read() as connection:
        return connection.execute(query).all()
