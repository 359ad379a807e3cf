"""Rows as values: pure functions from what the tables hold back to the shared nouns."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Row

from rlf.lineage.inner import inner_blobs, read_inner
from rlf.lineage.lease import has_owner
from rlf.lineage.payload import Payload, decode, decode_task
from rlf.lineage.records import (
    FileRecord,
    FoundCall,
    ParentKind,
    Run,
    RunRecord,
    StoredTrajectory,
    ToolCallSummary,
    TrajectorySummary,
)
from rlf.types import (
    Attempt,
    CallRecord,
    FailureClass,
    Image,
    Outcome,
    ParseFailure,
    RunStatus,
    Score,
    Scored,
    ScoreState,
    ScoreUsage,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

AnyRow = Row[tuple[Any, ...]]


def run(row: AnyRow, files: tuple[FileRecord, ...], folder: str, lease_folder: Path | None) -> Run:
    """A run whose folder is at `folder` now; one that says running while no process owns it was interrupted."""
    status = RunStatus(row.status)
    gone = status is RunStatus.RUNNING and not has_owner(row, lease_folder)
    return Run(
        record=_record(row, files, folder),
        status=RunStatus.INTERRUPTED if gone else status,
        process_gone=gone,
        last_step=row.last_step,
        finished=row.finished,
        error=row.error,
        idle_s=row.idle_s or 0.0,
    )


def _record(row: AnyRow, files: tuple[FileRecord, ...], folder: str) -> RunRecord:
    return RunRecord(
        id=row.id,
        name=row.name,
        engine=row.engine,
        seed=row.seed,
        plan=json.loads(row.plan),
        plan_hash=row.plan_hash,
        code_version=row.code_version,
        host=json.loads(row.host),
        packages=json.loads(row.packages),
        command=row.command,
        folder=folder,
        home=row.home,
        cwd=row.cwd,
        files=files,
        parent_id=row.parent_id,
        parent_kind=ParentKind(row.parent_kind) if row.parent_kind else None,
        parent_step=row.parent_step,
        patch_sha256=row.patch_sha256,
        started=row.started,
    )


def metrics(text: str) -> dict[str, float]:
    """Metrics by name; null is NaN, a string an infinity."""
    return {name: float("nan") if value is None else float(value) for name, value in json.loads(text).items()}


def summary(row: AnyRow) -> TrajectorySummary:
    """A trajectory's own row."""
    return TrajectorySummary(
        step=row.step,
        phase=row.phase,
        k=row.k,
        trajectory_id=row.trajectory_id,
        task_id=row.task_id,
        sample_index=row.sample_index,
        kind=row.kind,
        stop=StopReason(row.stop),
        error=row.error,
        answer=row.answer,
        gold=json.loads(row.gold),
        reward=row.reward,
        success=row.success,
        advantage=row.advantage,
        num_tokens=row.num_tokens,
        num_sampled=row.num_sampled,
        num_turns=row.num_turns,
        num_calls=row.num_calls,
        duration_s=row.duration_s,
    )


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
    """What trajectories and calls refer to."""
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
    payload, head = decode(data), summary(row)
    if row.task_sha256 is None:
        task = Task(head.task_id, payload.messages, head.gold, head.kind)
    else:
        task = decode_task(blobs[row.task_sha256], head.task_id, head.kind)
    trajectory = Trajectory(
        id=head.trajectory_id,
        task=task,
        sample_index=head.sample_index,
        tokens=payload.tokens,
        action_mask=payload.action_mask,
        rollout_logprobs=payload.rollout_logprobs,
        turns=_turns(payload, calls, failures, blobs),
        stop=head.stop,
        answer=head.answer,
        error=head.error,
        duration_s=head.duration_s,
        forks=payload.forks,
    )
    return StoredTrajectory(head, Scored(trajectory, tuple(map(_score, scores)), head.reward, head.success))


def _turns(payload: Payload, calls: Sequence[AnyRow], failures: Sequence[AnyRow], blobs: Blobs) -> tuple[Turn, ...]:
    calls_by_turn: dict[int, list[CallRecord]] = defaultdict(list)
    for row in calls:
        calls_by_turn[row.turn].append(_call(row, blobs))
    failures_by_turn: dict[int, list[ParseFailure]] = defaultdict(list)
    for row in failures:
        failures_by_turn[row.turn].append(_failure(row))
    return tuple(
        replace(turn, calls=tuple(calls_by_turn[number]), failures=tuple(failures_by_turn[number]))
        for number, turn in enumerate(payload.turns)
    )


def _call(row: AnyRow, blobs: Blobs) -> CallRecord:
    result = ToolResult(
        outcome=Outcome(row.outcome),
        text=row.text if row.text_sha256 is None else blobs[row.text_sha256].decode(),
        attempts=_attempts(row),
        queue_s=row.queue_s,
        run_s=row.run_s,
        cached=row.cached,
        truncated=row.truncated,
        size_bytes=row.size_bytes,
        isolation=row.isolation,
        sha256=row.original_sha256 or "",
        original=blobs[row.original_sha256].decode() if row.original_sha256 in blobs else None,
        coerced=bool(row.coerced),
        usage=json.loads(row.usage or "{}"),
        structured=None if row.structured is None else json.loads(row.structured),
        images=tuple(Image(blobs[name], mime_type) for mime_type, name in json.loads(row.images or "[]")),
        inner=read_inner(row.inner, blobs),
    )
    return CallRecord(ToolCall(row.name, json.loads(row.arguments)), result)


def found_calls(row: AnyRow, blobs: Mapping[str, bytes]) -> Iterator[FoundCall]:
    """The calls of a row joined with the place of its trajectory: its own, then those inside of it."""
    own = _call(row, blobs)
    yield _found(row, own.call, own.result, "")
    yield from _found_inside(row, own.result, "")


def _found_inside(row: AnyRow, result: ToolResult, inside: str) -> Iterator[FoundCall]:
    for number, turn in enumerate(result.inner):
        for position, made in enumerate(turn.calls):
            place = f"{inside}/{number}.{position}".removeprefix("/")
            yield _found(row, made.call, made.result, place)
            yield from _found_inside(row, made.result, place)


def _found(row: AnyRow, call: ToolCall, result: ToolResult, inside: str) -> FoundCall:
    return FoundCall(
        phase=row.phase,
        step=row.step,
        k=row.k,
        turn=row.turn,
        position=row.position,
        trajectory_id=row.trajectory_id,
        name=call.name,
        arguments=call.arguments,
        outcome=result.outcome,
        text=result.text,
        attempts=result.attempts,
        run_s=result.run_s,
        inside=inside,
    )


def _attempts(row: AnyRow) -> tuple[Attempt, ...]:
    return tuple(Attempt(Outcome(outcome), *rest) for outcome, *rest in json.loads(row.attempts))


def _failure(row: AnyRow) -> ParseFailure:
    return ParseFailure(FailureClass(row.kind), row.message, row.raw, row.raw_start, row.structural)


def _score(row: AnyRow) -> Score:
    turn_values = None if row.turn_values is None else tuple(json.loads(row.turn_values))
    state = ScoreState(row.state or ScoreState.SCORED)
    usage = None if row.usage is None else ScoreUsage(**json.loads(row.usage))
    return Score(row.term, row.value, row.weight, row.reason, row.elapsed_s, state, turn_values, usage)
