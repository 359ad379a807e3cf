"""Rows as values: pure functions from what the tables hold back to the shared nouns."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row

from rlf.lineage.payload import Payload, decode
from rlf.lineage.process import Process, is_gone
from rlf.lineage.records import (
    FileRecord,
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
    Outcome,
    ParseFailure,
    RunStatus,
    Score,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

AnyRow = Row[tuple[Any, ...]]


def run(row: AnyRow, files: tuple[FileRecord, ...]) -> Run:
    """A run; one that says running while its process is gone was interrupted."""
    status = RunStatus(row.status)
    gone = status is RunStatus.RUNNING and is_gone(Process(row.pid, row.node, row.boot, row.pid_ticks))
    return Run(
        record=_record(row, files),
        status=RunStatus.INTERRUPTED if gone else status,
        process_gone=gone,
        last_step=row.last_step,
        finished=row.finished,
        error=row.error,
    )


def _record(row: AnyRow, files: tuple[FileRecord, ...]) -> RunRecord:
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
        folder=row.folder,
        files=files,
        parent_id=row.parent_id,
        parent_kind=ParentKind(row.parent_kind) if row.parent_kind else None,
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


def stored_trajectory(
    row: AnyRow, data: bytes, scores: Sequence[AnyRow], calls: Sequence[AnyRow], failures: Sequence[AnyRow]
) -> StoredTrajectory:
    """A whole trajectory from its rows; calls and failures go back to their turns."""
    payload, head = decode(data), summary(row)
    trajectory = Trajectory(
        id=head.trajectory_id,
        task=Task(head.task_id, payload.messages, head.gold, head.kind),
        sample_index=head.sample_index,
        tokens=payload.tokens,
        action_mask=payload.action_mask,
        rollout_logprobs=payload.rollout_logprobs,
        turns=_turns(payload, calls, failures),
        stop=head.stop,
        answer=head.answer,
        error=head.error,
        duration_s=head.duration_s,
    )
    return StoredTrajectory(head, Scored(trajectory, tuple(map(_score, scores)), head.reward, head.success))


def _turns(payload: Payload, calls: Sequence[AnyRow], failures: Sequence[AnyRow]) -> tuple[Turn, ...]:
    calls_by_turn: dict[int, list[CallRecord]] = defaultdict(list)
    for row in calls:
        calls_by_turn[row.turn].append(_call(row))
    failures_by_turn: dict[int, list[ParseFailure]] = defaultdict(list)
    for row in failures:
        failures_by_turn[row.turn].append(_failure(row))
    return tuple(
        replace(turn, calls=tuple(calls_by_turn[number]), failures=tuple(failures_by_turn[number]))
        for number, turn in enumerate(payload.turns)
    )


def _call(row: AnyRow) -> CallRecord:
    attempts = tuple(Attempt(Outcome(outcome), run_s, error) for outcome, run_s, error in json.loads(row.attempts))
    result = ToolResult(
        outcome=Outcome(row.outcome),
        text=row.text,
        attempts=attempts,
        queue_s=row.queue_s,
        run_s=row.run_s,
        cached=row.cached,
        truncated=row.truncated,
        size_bytes=row.size_bytes,
        isolation=row.isolation,
    )
    return CallRecord(ToolCall(row.name, json.loads(row.arguments)), result)


def _failure(row: AnyRow) -> ParseFailure:
    return ParseFailure(FailureClass(row.kind), row.message, row.raw, row.raw_start, row.structural)


def _score(row: AnyRow) -> Score:
    return Score(row.term, row.value, row.weight, row.reason, row.elapsed_s)
