"""Tool calls of a run, those inside of agents' calls among them, their outcomes, and what was spent."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection, case, func, select, text

from rlf.lineage import tables
from rlf.lineage.blobs import read_blobs
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, Cost, FoundCall, LeftOut, ToolCallSummary, TrajectoryFilter, TrajectoryLine
from rlf.lineage.rows import decode_payload, decode_task, inner_names
from rlf.lineage.store import Store
from rlf.lineage.values import AnyRow, blob_names, call_json, filter_conditions, summary, value
from rlf.types import CallRecord, Outcome, ToolCall, ToolResult
from rlf.types.trajectory import SAMPLER
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


def tool_summary(name: str, rows: Sequence[AnyRow]) -> ToolCallSummary:
    """One tool's totals from its totals per outcome."""
    num_calls = sum(row.num_calls for row in rows)
    return ToolCallSummary(
        name=name,
        num_calls=num_calls,
        num_by_outcome={Outcome(row.outcome): row.num_calls for row in rows},
        num_cached=sum(row.num_cached for row in rows),
        num_truncated=sum(row.num_truncated for row in rows),
        mean_run_s=sum(row.run_s for row in rows) / num_calls,
        max_run_s=max(row.max_run_s for row in rows),
        mean_queue_s=sum(row.queue_s for row in rows) / num_calls,
    )


def _make_cost(kind: str, name: str, usage: Mapping[str, float], by_phase: Mapping[str, float]) -> Cost:
    num_tokens = sum(usage.get(unit, 0) for unit in ("prompt_tokens", "completion_tokens", "num_tokens"))
    return Cost(
        kind=kind,
        name=name,
        num_requests=int(usage.get("requests", 0)),
        num_without_usage=int(usage.get("requests_without_usage", 0)),
        num_tokens=int(num_tokens),
        num_cached_tokens=int(usage.get("cached_tokens", 0)),
        cost_usd=usage.get("cost_usd", 0.0),
        cost_usd_by_phase=dict(by_phase),
    )


def read_costs(reader: Reader, run_id: str) -> list[Cost]:
    """Costs of a run's tools and judges, by name, the dearest first."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    by_phase: dict[tuple[str, str], dict[str, float]] = {}
    for row in reader.fetch_all(select(tables.costs).where(tables.costs.c.run_id == run_id)):
        usage, key = json.loads(row.usage), (row.kind, row.name)
        sums.setdefault(key, Counter()).update(usage)
        by_phase.setdefault(key, {})[row.phase] = usage.get("cost_usd", 0.0)
    found = [_make_cost(*key, usage, by_phase[key]) for key, usage in sums.items()]
    return sorted(found, key=lambda cost: (-cost.cost_usd, -cost.num_tokens, cost.name))


def tool_call_summary(reader: Reader, run_id: str) -> list[ToolCallSummary]:
    """Outcomes of each tool's calls, over training and evaluations; most called first."""
    columns = tables.tool_totals.c
    added = ("num_calls", "num_cached", "num_truncated", "run_s", "queue_s")
    query = (
        select(
            columns.name,
            columns.outcome,
            func.max(columns.max_run_s).label("max_run_s"),
            *(func.sum(columns[name]).label(name) for name in added),
        )
        .where(columns.run_id == run_id)
        .group_by(columns.name, columns.outcome)
    )
    by_name: dict[str, list[AnyRow]] = defaultdict(list)
    for row in reader.fetch_all(query):
        by_name[row.name].append(row)
    found = [tool_summary(name, rows) for name, rows in by_name.items()]
    return sorted(found, key=lambda tool: (-tool.num_calls, tool.name))


def read_left_out(store: Store, run_id: str) -> LeftOut:
    """The rollouts of training that no try gave a reward. Groups all trajectories: for runs in which some have none."""
    table, scores = tables.trajectories.c, tables.scores.c
    rollout = (table.kind, table.step, table.task_id, table.sample_index)
    best, ref = func.max(table.reward), func.min(table.id)
    broken = func.min(case((table.error.is_not(None), table.id)))
    query = select(*rollout, best.label("best"), broken.label("broken"), ref.label("ref"))
    each = query.where(table.run_id == run_id, table.phase == TRAIN).group_by(*rollout).subquery()
    is_lost, lost = each.c.best.is_(None), func.sum(case((each.c.best.is_(None), 1), else_=0))
    payloads = select(tables.payloads.c.data).join(each, each.c.broken == tables.payloads.c.trajectory_ref)
    unscored = select(each.c.ref).where(is_lost, each.c.broken.is_(None))
    terms = (
        select(scores.term, func.count())
        .where(scores.trajectory_ref.in_(unscored), scores.value.is_(None), scores.weight != 0)
        .group_by(scores.term)
    )
    with store.read() as connection:
        kinds = connection.execute(select(each.c.kind, lost, func.count()).group_by(each.c.kind)).all()
        causes = Counter({f"reward term {term!r}": number for term, number in connection.execute(terms)})
        for data in connection.scalars(payloads.where(is_lost)):
            causes[decode_payload(data).get("broken", {"name": SAMPLER})["name"]] += 1
    return LeftOut({kind: (int(number), of) for kind, number, of in sorted(kinds, key=str)}, causes)


def read_asked(connection: Connection, rows: Sequence[AnyRow]) -> list[TrajectoryLine]:
    """Trajectories with their questions, of which each is read once."""
    blobs = read_blobs(connection, {row.task_sha256 for row in rows if row.task_sha256 is not None})
    questions = {name: decode_task(data, "", None).messages[-1].content for name, data in blobs.items()}
    return [TrajectoryLine(summary(row), questions.get(row.task_sha256, "")) for row in rows]
