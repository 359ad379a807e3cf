"""Branches of a trajectory that are in the lineage: evaluations of its run that continue it from one of its turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlf.lineage.reader import Reader
from rlf.lineage.records import EVALUATION

SECTION = "branch"
"""Of a recorded plan: what it is a branch of."""


@dataclass(frozen=True, slots=True)
class BranchLine:
    """Branches of a trajectory that are in the lineage."""

    run_id: str
    turn: int
    observation: str | None
    num_played: int
    success: float | None


def find_branches(reader: Reader, run_id: str, place: tuple[str, int, int]) -> list[BranchLine]:
    """The branches of a trajectory, newest first."""
    ids = [line.id for line in reader.run_lines(parent_id=run_id) if line.engine == EVALUATION]
    found = list[BranchLine]()
    for run in reader.list_runs(ids) if ids else ():
        of: dict[str, Any] | None = run.record.plan.get(SECTION)
        if of is None or (of["phase"], of["step"], of["k"]) != place:
            continue
        for one in reader.evaluations(run.record.id):
            num = len(reader.trajectories(run.record.id))
            found.append(BranchLine(run.record.id, of["turn"], of["observation"], num, one.metrics.get("success")))
    return found
