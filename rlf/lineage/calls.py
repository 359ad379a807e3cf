"""Tool calls of a run, those inside of agents' calls among them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from sqlalchemy import select, text

from rlf.lineage import tables
from rlf.lineage.blobs import read_blobs
from rlf.lineage.reader import Reader
from rlf.lineage.records import FoundCall, TrajectoryFilter
from rlf.lineage.rows import inner_names
from rlf.lineage.values import AnyRow, blob_names, call_json, filter_conditions, value
from rlf.types import CallRecord, Outcome, ToolCall, ToolResult
from rlf.types.written import read

_ROWS = 200
"""Rows of calls that are read at once."""
_OF_RESULT = ("outcome", "text", "attempts", "run_s")


def read_calls(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, tool: str | None, outcomes: Collection[Outcome], limit: int
) -> list[FoundCall]:
    """The calls of a tool, or of all, that ended in one of the outcomes, in the order of their trajectories.

    Calls inside of agents' calls are among them, behind the agent's.
    """
    calls, of = tables.tool_calls.c, tables.trajectories.c
    wanted_here = calls.outcome.in_(outcomes) if tool is None else (calls.outcome.in_(outcomes) & (calls.name == tool))
    query = (
        select(tables.tool_calls, of.phase, of.step, of.k, of.trajectory_id)
        .join(tables.trajectories, of.id == calls.trajectory_ref)
        .where(of.run_id == run_id, wanted_here | calls.inner.is_not(None), *filter_conditions(wanted))
        .order_by(of.phase, of.step, of.k, calls.turn, calls.position)
    )
    if Outcome.OK not in outcomes:  # few: found by their indexes, in any run
        failed = select(calls.trajectory_ref).where(text(tables.CALL_FAILED), wanted_here)
        inside = select(calls.trajectory_ref).where(text(tables.CALL_OF_AGENT))
        query = query.where(of.id.in_(failed) | of.id.in_(inside))
    found = list[FoundCall]()
    with reader.store.read() as connection:
        for rows in connection.execute(query).partitions(_ROWS):
            blobs = read_blobs(connection, blob_names([], rows))
            every = (call for row in rows for call in _found_calls(row, blobs))
            found += [call for call in every if tool in (None, call.name) and call.outcome in outcomes]
            if len(found) >= limit:
                break
    return found[:limit]


def names_inside(reader: Reader, run_id: str) -> set[str]:
    """Names of the tools that agents called."""
    of, calls = tables.trajectories.c, tables.tool_calls.c
    here = select(of.id).where(of.id == calls.trajectory_ref, of.run_id == run_id).exists()
    with reader.store.read() as connection:
        rows = connection.execute(select(calls.inner).where(text(tables.CALL_OF_AGENT), here)).all()
    return {name for row in rows for name in inner_names(json.loads(row.inner))}


def _found_calls(row: AnyRow, blobs: Mapping[str, bytes]) -> Iterator[FoundCall]:
    """The calls of a row joined with the place of its trajectory: its own, then those inside of it."""
    own = read(CallRecord, call_json(row, blobs))
    yield _make_found_call(row, own.call, own.result, "")
    yield from _found_inside(row, own.result, "")


def _found_inside(row: AnyRow, result: ToolResult, inside: str) -> Iterator[FoundCall]:
    for number, turn in enumerate(result.inner):
        for position, made in enumerate(turn.calls):
            place = f"{inside}/{number}.{position}".removeprefix("/")
            yield _make_found_call(row, made.call, made.result, place)
            yield from _found_inside(row, made.result, place)


def _make_found_call(row: AnyRow, call: ToolCall, result: ToolResult, inside: str) -> FoundCall:
    made = {"name": call.name, "arguments": call.arguments, "inside": inside}
    return value(FoundCall, row, **made, **{name: getattr(result, name) for name in _OF_RESULT})
