"""Events as rows: from the shared nouns to the values of the tables, without secrets; long contents go to `Blobs`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.core.redact import Redactor
from rlf.lineage.blobs import Blobs
from rlf.lineage.inner import inner_json
from rlf.types import CallRecord, ParseFailure, Scored, ScoreState, ToolResult, Trajectory
from rlf.types.written import write

Row = dict[str, Any]


def metrics_json(metrics: Mapping[str, float], redactor: Redactor) -> str:
    """Metrics as JSON that any database reads: NaN is null, an infinity a string."""
    return redactor.json({name: _plain_number(float(value)) for name, value in metrics.items()})


def _plain_number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return str(value) if math.isinf(value) else value


def trajectory_row(scored: Scored, task_sha256: str, redactor: Redactor) -> Row:
    """The trajectory's own row without its place (run, phase, step, k) and its advantage."""
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
        "num_tokens": len(trajectory.tokens),
        "num_sampled": trajectory.num_sampled,
        "num_turns": len(trajectory.turns),
        "num_calls": len(trajectory.calls),
        "duration_s": trajectory.duration_s,
        "task_sha256": task_sha256,
    }


def collection_row(trajectories: Sequence[Scored]) -> Row:
    """Totals of the trajectories of one step or evaluation."""
    all_of = [scored.trajectory for scored in trajectories]
    return {
        "num_trajectories": len(all_of),
        "num_tokens": sum(len(trajectory.tokens) for trajectory in all_of),
        "num_sampled": sum(trajectory.num_sampled for trajectory in all_of),
        "num_calls": sum(len(trajectory.calls) for trajectory in all_of),
    }


def tool_total_rows(trajectories: Sequence[Scored], redactor: Redactor) -> list[Row]:
    """Totals of the calls of one step or evaluation, by tool and outcome."""
    results: dict[tuple[str, str], list[ToolResult]] = {}
    for scored in trajectories:
        for record in scored.trajectory.calls:
            results.setdefault((redactor.text(record.call.name), record.result.outcome), []).append(record.result)
    return [
        {
            "name": name,
            "outcome": outcome,
            "num_calls": len(found),
            "num_cached": sum(result.cached for result in found),
            "num_truncated": sum(result.truncated for result in found),
            "run_s": math.fsum(result.run_s for result in found),
            "max_run_s": max(result.run_s for result in found),
            "queue_s": math.fsum(result.queue_s for result in found),
        }
        for (name, outcome), found in results.items()
    ]


def score_rows(scored: Scored, redactor: Redactor) -> list[Row]:
    """One row per reward term; the ordinary state, of most rows, is null."""
    rows = []
    for position, score in enumerate(scored.scores):
        row: Row = {"position": position} | {name: getattr(score, name) for name in _SCORE}
        row |= {"term": redactor.text(score.term), "reason": redactor.text(score.reason)}
        row["state"] = None if score.state is ScoreState.SCORED else score.state
        row["turn_values"] = None if score.turn_values is None else json.dumps(score.turn_values)
        rows.append(row | {"usage": None if score.usage is None else json.dumps(write(score.usage))})
    return rows


def call_rows(trajectory: Trajectory, redactor: Redactor, blobs: Blobs) -> list[Row]:
    """One row per tool call, named by its turn and its position there."""
    return [
        {"turn": number, "position": position} | _call_row(record, redactor, blobs)
        for number, turn in enumerate(trajectory.turns)
        for position, record in enumerate(turn.calls)
    ]


def _call_row(record: CallRecord, redactor: Redactor, blobs: Blobs) -> Row:
    """A result's written form by columns: contents by their names, JSON as text."""
    result = record.result
    row: Row = {name: getattr(result, name) for name in _RESULT}
    text, text_sha256 = blobs.keep_long(redactor.text(result.text))
    whole = None if result.original is None else blobs.keep(redactor.text(result.original).encode())
    images = [[image.mime_type, blobs.keep(image.data)] for image in result.images]
    return row | {
        "coerced": result.coerced or None,
        "attempts": redactor.json(write(result.attempts)),
        "usage": redactor.json(result.usage) if result.usage else None,
        "structured": None if result.structured is None else redactor.json(result.structured),
        "name": redactor.text(record.call.name),
        "arguments": redactor.json(record.call.arguments),
        "text": text,
        "text_sha256": text_sha256,
        "original_sha256": whole or result.sha256 or None,
        "images": json.dumps(images) if images else None,
        "inner": inner_json(result.inner, redactor, blobs),
    }


_SCORE = ("value", "weight", "elapsed_s")
_RESULT = ("outcome", "queue_s", "run_s", "cached", "truncated", "size_bytes", "isolation")


def failure_rows(trajectory: Trajectory, redactor: Redactor) -> list[Row]:
    """One row per parse failure, named by its turn and its position there."""
    return [
        {"turn": number, "position": position} | _failure_row(failure, redactor)
        for number, turn in enumerate(trajectory.turns)
        for position, failure in enumerate(turn.failures)
    ]


def _failure_row(failure: ParseFailure, redactor: Redactor) -> Row:
    texts = {"message": redactor.text(failure.message), "raw": redactor.text(failure.raw)}
    return {"kind": failure.kind, "raw_start": failure.position, "structural": failure.structural} | texts
