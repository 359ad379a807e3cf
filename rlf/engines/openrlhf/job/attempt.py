"""One launch of a job: what differs between the first and those that continue after a stop.

The driver writes `attempt.json` into the job folder before each launch; the agents read it beside their `agent.py`.
"""

from __future__ import annotations

from rlf.core.kinds import StrictModel
from rlf.engines.openrlhf.job.folder import Job

_FILE = "attempt.json"


class Attempt(StrictModel):
    """Where the agents of one launch write, and what they do first."""

    run: str
    """The run's id."""
    number: int
    """Counts from 1."""
    first_step: int
    """The step that it begins with: 1, or the one after the checkpoint that it continues from."""
    spool: str
    """Folder of the agents' records."""
    evaluate_first: bool
    """Whether the policy is evaluated before anything is trained on."""
    opening_calls: bool = False
    """Whether every other trajectory opens with a written tool call, so that a rehearsal tries every tool."""
    left_is_told: bool = False
    """Whether the lineage has the trajectories that the end of this launch cut off."""


def read_attempt(job: Job) -> Attempt:
    """The latest launch of a job; the first one for a job that was started by hand."""
    file = job.folder / _FILE
    return Attempt.model_validate_json(file.read_text()) if file.is_file() else new_attempt(job, 1, first_step=1)


def new_attempt(job: Job, number: int, *, first_step: int, opening_calls: bool = False) -> Attempt:
    """The launch of that number; it evaluates first where nothing has been trained yet."""
    return Attempt(
        run=job.run_id,
        number=number,
        first_step=first_step,
        spool=str(job.spool / f"attempt-{number}"),
        evaluate_first=first_step == 1,
        opening_calls=opening_calls,
    )


def write_attempt(job: Job, attempt: Attempt) -> None:
    """Makes `attempt` the latest launch."""
    temporary = job.folder / f".{_FILE}.tmp"
    temporary.write_text(attempt.model_dump_json(indent=1))
    temporary.replace(job.folder / _FILE)
