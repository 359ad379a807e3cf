"""Rows as values: pure functions from what the tables hold back to the shared nouns."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Row

from rlf.lineage.inner import inner_blobs, read_inner
from rlf.lineage.lease import has_owner
from rlf.lineage.payload import decode, decode_task
from rlf.lineage.records import (
    FileRecord,
    FoundCall,
    ParentKind,
    Run,
    RunLine,
    RunRecord,
    StoredTrajectory,
    ToolCallSummary,
    TrajectorySummary,
)
from rlf.types import (
    CallRecord,
    Message,
    Outcome,
    ParseFailure,
    RunStatus,
    Score,
    Scored,
    ScoreState,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
)
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
    names = tuple(name for name in _field_names(kind) if name not in known)
    return names, attrgetter(*names) if len(names) > 1 else lambda row: tuple(getattr(row, name) for name in names)


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


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
    head, values = summary(row), decode(data)
    messages = values.pop("messages", ())
    if row.task_sha256 is None:
        task = Task(head.task_id, tuple(Message(*message) for message in messages), head.gold, head.kind)
    else:
        task = decode_task(blobs[row.task_sha256], head.task_id, head.kind)
    for turn in values["turns"]:
        turn |= {"calls": [], "failures": []}
    for call in calls:
        values["turns"][call.turn]["calls"].append(_call_json(call, blobs))
    for failure in failures:
        failed = _pick_columns(ParseFailure, failure, position=failure.raw_start)
        values["turns"][failure.turn]["failures"].append(failed)
    values |= {"id": row.trajectory_id, "task": task} | {name: getattr(row, name) for name in _OF_TRAJECTORY}
    scored = _pick_columns(Scored, row, trajectory=values, scores=list(map(_make_score_values, scores)))
    return StoredTrajectory(head, read(Scored, scored))


def _call_json(row: AnyRow, blobs: Blobs) -> dict[str, Any]:
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
        result["images"] = [[mime_type, base64.b64encode(blobs[name])] for mime_type, name in images]
    if row.inner is not None:
        result["inner"] = read_inner(row.inner, blobs)
    return {"call": {"name": row.name, "arguments": json.loads(row.arguments)}, "result": result}


_OF_TRAJECTORY = ("sample_index", "stop", "answer", "error", "duration_s")
_PLAIN = ("outcome", "text", "queue_s", "run_s", "cached", "truncated", "size_bytes", "isolation")
_JSON = ("attempts", "usage", "structured")
_OF_RESULT = ("outcome", "text", "attempts", "run_s")


def found_calls(row: AnyRow, blobs: Mapping[str, bytes]) -> Iterator[FoundCall]:
    """The calls of a row joined with the place of its trajectory: its own, then those inside of it."""
    own = read(CallRecord, _call_json(row, blobs))
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


def _make_score_values(row: AnyRow) -> dict[str, Any]:
    parts = {name: json.loads(getattr(row, name) or "null") for name in ("turn_values", "usage")}
    return _pick_columns(Score, row, state=row.state or ScoreState.SCORED, **parts)
