"""A scored trajectory as the rows that the lineage stores, made before its place there is known, in any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from sqlalchemy import Table

from rlf.core.redact import Redactor
from rlf.lineage import tables
from rlf.lineage.blobs import Blobs, Content
from rlf.lineage.payload import encode, encode_task
from rlf.lineage.rows import call_rows, failure_rows, score_rows, trajectory_row
from rlf.types import Scored

Values = tuple[Any, ...]
"""Of a row, by its columns: read and written in half the time of what has names."""


def _columns(table: Table, *place: str) -> tuple[str, ...]:
    """The columns of a table but for its place."""
    return tuple(column.name for column in table.c if column.name not in place)


HEAD = _columns(tables.trajectories, "id", "run_id", "phase", "step", "k", "advantage")
CALL, SCORE, FAILURE = (
    _columns(table, "trajectory_ref") for table in (tables.tool_calls, tables.scores, tables.parse_failures)
)
_pick_head, _pick_call, _pick_score, _pick_failure = (itemgetter(*names) for names in (HEAD, CALL, SCORE, FAILURE))


@dataclass(frozen=True, slots=True)
class EncodedTrajectory:
    """Rows without their place, which the recorder adds: run, phase, step, k, the trajectory's number."""

    head: Values
    """The trajectory's own row, without its advantage."""
    payload: bytes
    calls: Sequence[Values]
    scores: Sequence[Values]
    failures: Sequence[Values]
    contents: Mapping[str, Content]
    """What the rows refer to and is compressed already, by name."""


def encode_trajectory(
    scored: Scored, redactor: Redactor, blobs: Blobs, task_sha256: str | None = None
) -> EncodedTrajectory:
    """The rows of one trajectory; long contents go to `blobs`.

    Args:
        task_sha256: the name of the task's content, where that is kept already.
    """
    trajectory = scored.trajectory
    name = task_sha256 or blobs.keep(encode_task(trajectory.task, redactor))
    return EncodedTrajectory(
        head=_pick_head(trajectory_row(scored, name, redactor)),
        payload=encode(trajectory, redactor),
        calls=list(map(_pick_call, call_rows(trajectory, redactor, blobs))),
        scores=list(map(_pick_score, score_rows(scored, redactor))),
        failures=list(map(_pick_failure, failure_rows(trajectory, redactor))),
        contents={},
    )


def encode_whole(scored: Scored, redactor: Redactor) -> EncodedTrajectory:
    """The rows of one trajectory with their contents, to be written by another process."""
    blobs = Blobs()
    return replace(encode_trajectory(scored, redactor, blobs), contents=blobs.compressed())
