"""Rows as values: pure functions from what the tables hold back to the shared nouns."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, TextClause, func, select, text

from rlf.core import RlfError, nearest
from rlf.core.errors import NotFoundError
from rlf.lineage import tables
from rlf.lineage.blobs import read_blobs
from rlf.lineage.lease import has_owner
from rlf.lineage.records import (
    BRANCH_SECTION,
    FileRecord,
    ParentKind,
    Run,
    RunLine,
    RunRecord,
    StoredTrajectory,
    TrajectoryFilter,
    TrajectorySummary,
)
from rlf.lineage.rows import decode_payload, decode_task, inner_blobs, read_inner
from rlf.types import Outcome, ParseFailure, RunStatus, Score, Scored, ScoreState, StopReason
from rlf.types.trajectory import SAMPLER
from rlf.types.written import read

T = TypeVar("T")
AnyRow = Row[tuple[Any, ...]]


def value(kind: type[T], row: AnyRow, **known: Any) -> T:
    """A row as a value with fields named as its columns; `known` has given fields."""
    return kind(**_pick_columns(kind, row, **known))


def _pick_columns(kind: Any, row: AnyRow, **known: Any) -> dict[str, Any]:
    names, pick = _columns_of(kind, tuple(known))
    return dict(zip(names, pick(row), strict=True)) | known


@cache
def _columns_of(kind: Any, known: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[AnyRow], tuple[Any, ...]]]:
    """The fields that are columns, and what picks them of a row, which is much faster than one at a time."""
    names = tuple(field.name for field in fields(kind) if field.name not in known)
    return names, attrgetter(*names) if len(names) > 1 else lambda row: tuple(getattr(row, name) for name in names)


def run(row: AnyRow, files: tuple[FileRecord, ...], folder: str, lease_folder: Path | None) -> Run:
    """A run whose folder is at `folder` now. A running run that no process owns counts as interrupted."""
    status, gone = _read_status(row, lease_folder)
    kind = ParentKind(row.parent_kind) if row.parent_kind else None
    texts = {name: json.loads(getattr(row, name)) for name in ("plan", "host", "packages")}
    record = value(RunRecord, row, folder=folder, files=files, parent_kind=kind, **texts)
    return value(Run, row, record=record, status=status, process_gone=gone, idle_s=row.idle_s or 0.0)


def run_line(row: AnyRow, lease_folder: Path | None) -> RunLine:
    """A run's line, its status as that of `run`."""
    status, gone = _read_status(row, lease_folder)
    kind = ParentKind(row.parent_kind) if row.parent_kind else None
    return value(RunLine, row, status=status, process_gone=gone, parent_kind=kind, idle_s=row.idle_s or 0.0)


def _read_status(row: AnyRow, lease_folder: Path | None) -> tuple[RunStatus, bool]:
    """A run's status, and whether its process is gone without a word."""
    status = RunStatus(row.status)
    gone = status is RunStatus.RUNNING and not has_owner(row, lease_folder)
    return RunStatus.INTERRUPTED if gone else status, gone


def metrics(text: str) -> dict[str, float]:
    """Metrics by name; null is NaN, a string an infinity."""
    return {name: float("nan") if value is None else float(value) for name, value in json.loads(text).items()}


def summary(row: AnyRow) -> TrajectorySummary:
    """A trajectory's own row."""
    return value(TrajectorySummary, row, stop=StopReason(row.stop), gold=json.loads(row.gold))


Blobs = Mapping[str, bytes]


def blob_names(tasks: Sequence[AnyRow], calls: Sequence[AnyRow]) -> list[str]:
    """Names of the blobs that trajectories and calls refer to."""
    names = [row.task_sha256 for row in tasks]
    names += [name for call in calls for name in (call.text_sha256, call.original_sha256)]
    images = [sha256 for call in calls for _, sha256 in json.loads(call.images or "[]")]
    inner = [name for call in calls for name in inner_blobs(call.inner)]
    return [name for name in (*names, *images, *inner) if name]


def stored_trajectory(
    row: AnyRow,
    data: bytes,
    scores: Sequence[AnyRow],
    calls: Sequence[AnyRow],
    failures: Sequence[AnyRow],
    blobs: Blobs,
) -> StoredTrajectory:
    """A whole trajectory from its rows and blobs; calls and failures go back to their turns."""
    head, values = summary(row), decode_payload(data)
    task = decode_task(blobs[row.task_sha256], head.task_id, head.kind)
    for turn in values["turns"]:
        turn |= {"calls": [], "failures": []}
    for call in calls:
        values["turns"][call.turn]["calls"].append(call_json(call, blobs))
    for failure in failures:
        failed = _pick_columns(ParseFailure, failure, position=failure.raw_start)
        values["turns"][failure.turn]["failures"].append(failed)
    if row.error is not None:
        values.setdefault("broken", {"name": SAMPLER, "error": row.error})
    values |= {"id": row.trajectory_id, "task": task} | {name: getattr(row, name) for name in _OF_TRAJECTORY}
    scored = _pick_columns(Scored, row, trajectory=values, scores=list(map(_make_score_values, scores)))
    return StoredTrajectory(head, read(Scored, scored))


def call_json(row: AnyRow, blobs: Blobs) -> dict[str, Any]:
    """The written form of a call and its result."""
    result = {name: getattr(row, name) for name in _PLAIN} | {"coerced": bool(row.coerced)}
    result |= {name: json.loads(text) for name in _JSON if (text := getattr(row, name)) is not None}
    if row.text_sha256 is not None:
        result["text"] = blobs[row.text_sha256].decode()
    if row.original_sha256 is not None:
        whole = blobs.get(row.original_sha256)
        result |= {"sha256": row.original_sha256, "original": None if whole is None else whole.decode()}
    if row.images is not None:
        images = json.loads(row.images)
        result["images"] = [{"mime_type": kind, "data": base64.b64encode(blobs[name])} for kind, name in images]
    if row.inner is not None:
        result["inner"] = read_inner(row.inner, blobs)
    return {"call": {"name": row.name, "arguments": json.loads(row.arguments)}, "result": result}


_OF_TRAJECTORY = ("sample_index", "stop", "answer", "duration_s")
_PLAIN = ("outcome", "text", "queue_s", "run_s", "cached", "truncated", "size_bytes", "isolation")
_JSON = ("attempts", "usage", "structured")


def _make_score_values(row: AnyRow) -> dict[str, Any]:
    parts = {name: json.loads(getattr(row, name) or "null") for name in ("turn_values", "usage")}
    return _pick_columns(Score, row, state=row.state or ScoreState.SCORED, **parts)


# Trajectories of a lineage: which are asked for, in which order, and all that hangs on one.


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


_SHOWN = 5
"""Runs that a message names."""
_NEWEST = re.compile(r"latest(?:~([0-9]{1,9}))?")


def num_before(name: str) -> int | None:
    """How many runs before the newest `latest` or `latest~N` means; None for another name."""
    match = _NEWEST.fullmatch(name)
    return int(match[1] or 0) if match else None


def is_probe(plan: Mapping[str, Any]) -> bool:
    """Whether a run's plan is that of a forecast, or of continuations of a trajectory: of a question about a run."""
    return BRANCH_SECTION in plan or plan.get("evaluation", {}).get("groups") is not None


def match_name(name: str, ids: list[str]) -> str:
    """The id that a name stands for; `ids` are newest first."""
    if not ids:
        raise NotFoundError(f"run {name!r}: the lineage holds no runs yet. Start one with `rlf run SPEC`.")
    if (before := num_before(name)) is not None:
        if before >= len(ids):
            raise NotFoundError(f"run {name!r}: the lineage has fewer runs; the oldest is {ids[-1]}.")
        return ids[before]
    found = [run_id for run_id in ids if name and run_id.startswith(name)]
    if name in found or len(found) == 1:
        return name if name in found else found[0]
    if found:
        raise RlfError(f"run {name!r}: {len(found)} runs begin so: {_join_some(found)}. Write more of the id.")
    from rlf.core.mistakes import explain

    if meant := explain("runs", name, name=name):
        raise NotFoundError(meant[0])
    known = f"(newest: {_join_some(ids)}). `latest` is the newest, `latest~1` the one before; see `rlf runs list`."
    raise NotFoundError(f"run {name!r}: no such run{nearest(name, ids)} {known}")


def _join_some(ids: list[str]) -> str:
    return ", ".join(ids[:_SHOWN]) + (", ..." if len(ids) > _SHOWN else "")
