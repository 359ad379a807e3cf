"""Events as rows: pure functions from the shared nouns to the values of the tables, without secrets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlf.lineage.payload import encode
from rlf.lineage.redact import Redactor
from rlf.types import CallRecord, ParseFailure, Scored, Trajectory

Row = dict[str, Any]


def metrics_json(metrics: Mapping[str, float], redactor: Redactor) -> str:
    """Metrics as JSON that any database reads: NaN is null, an infinity a string."""
    return redactor.json({name: _plain_number(float(value)) for name, value in metrics.items()})


def _plain_number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return str(value) if math.isinf(value) else value


def trajectory_row(scored: Scored, advantage: float | None, redactor: Redactor) -> Row:
    """The trajectory's own row, but for where it hangs (run, phase, step, k)."""
    trajectory, task = scored.trajectory, scored.trajectory.task
    return {
        "trajectory_id": redactor.text(trajectory.id),
        "task_id": redactor.text(task.id),
        "sample_index": trajectory.sample_index,
        "kind": redactor.optional(task.kind),
        "stop": trajectory.stop,
        "error": redactor.optional(trajectory.error),
        "answer": redactor.optional(trajectory.answer),
        "gold": redactor.json(task.answer),
        "reward": scored.reward,
        "success": scored.success,
        "advantage": advantage,
        "num_tokens": len(trajectory.tokens),
        "num_sampled": trajectory.num_sampled,
        "num_turns": len(trajectory.turns),
        "num_calls": len(trajectory.calls),
        "duration_s": trajectory.duration_s,
    }


def payload_row(ref: int, trajectory: Trajectory, redactor: Redactor) -> Row:
    """Tokens, mask, logprobs, turns and prompt, packed."""
    return {"trajectory_ref": ref, "data": encode(trajectory, redactor)}


def score_rows(ref: int, scored: Scored, redactor: Redactor) -> list[Row]:
    """One row per reward term."""
    return [
        {
            "trajectory_ref": ref,
            "position": position,
            "term": redactor.text(score.term),
            "value": score.value,
            "weight": score.weight,
            "reason": redactor.text(score.reason),
            "elapsed_s": score.elapsed_s,
        }
        for position, score in enumerate(scored.scores)
    ]


def call_rows(ref: int, trajectory: Trajectory, redactor: Redactor) -> list[Row]:
    """One row per tool call, named by its turn and its position there."""
    return [
        {"trajectory_ref": ref, "turn": number, "position": position} | _call(record, redactor)
        for number, turn in enumerate(trajectory.turns)
        for position, record in enumerate(turn.calls)
    ]


def _call(record: CallRecord, redactor: Redactor) -> Row:
    result = record.result
    attempts = [[attempt.outcome, attempt.run_s, attempt.error] for attempt in result.attempts]
    return {
        "name": redactor.text(record.call.name),
        "arguments": redactor.json(record.call.arguments),
        "outcome": result.outcome,
        "text": redactor.text(result.text),
        "attempts": redactor.json(attempts),
        "queue_s": result.queue_s,
        "run_s": result.run_s,
        "cached": result.cached,
        "truncated": result.truncated,
        "size_bytes": result.size_bytes,
        "isolation": result.isolation,
    }


def failure_rows(ref: int, trajectory: Trajectory, redactor: Redactor) -> list[Row]:
    """One row per parse failure, named by its turn and its position there."""
    return [
        {"trajectory_ref": ref, "turn": number, "position": position} | _failure(failure, redactor)
        for number, turn in enumerate(trajectory.turns)
        for position, failure in enumerate(turn.failures)
    ]


def _failure(failure: ParseFailure, redactor: Redactor) -> Row:
    return {
        "kind": failure.kind,
        "message": redactor.text(failure.message),
        "raw": redactor.text(failure.raw),
        "raw_start": failure.position,
        "structural": failure.structural,
    }
