"""A scored trajectory as the rows that the lineage stores, made before its place there is known, in any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlf.core.redact import Redactor
from rlf.lineage.blobs import Blobs, Content
from rlf.lineage.payload import encode, encode_task
from rlf.lineage.rows import Row, call_rows, failure_rows, score_rows, trajectory_row
from rlf.types import Scored


@dataclass(frozen=True, slots=True)
class EncodedTrajectory:
    """Rows without their place, which the recorder adds: run, phase, step, k, the trajectory's number."""

    head: Row
    """The trajectory's own row, without its advantage."""
    payload: Row
    calls: Sequence[Row]
    scores: Sequence[Row]
    failures: Sequence[Row]
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
        head=trajectory_row(scored, name, redactor),
        payload={"data": encode(trajectory, redactor)},
        calls=call_rows(trajectory, redactor, blobs),
        scores=score_rows(scored, redactor),
        failures=failure_rows(trajectory, redactor),
        contents={},
    )


def encode_whole(scored: Scored, redactor: Redactor) -> EncodedTrajectory:
    """The rows of one trajectory with their contents, to be written by another process."""
    blobs = Blobs()
    encoded = encode_trajectory(scored, redactor, blobs)
    return EncodedTrajectory(
        encoded.head, encoded.payload, encoded.calls, encoded.scores, encoded.failures, blobs.compressed()
    )
