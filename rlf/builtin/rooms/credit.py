"""Credit turn by turn: which of a trajectory's doors were right, as the tool's structured results say."""

from __future__ import annotations

from rlf.types import Trajectory

__all__ = ["right_doors"]


def right_doors(trajectory: Trajectory) -> list[float | None]:
    """1 or 0 for each turn with one call that was answered, None for any other; a reward function for `stage: turn`."""
    values: list[float | None] = []
    for turn in trajectory.turns:
        results = [record.result.structured for record in turn.calls]
        known = [float(result["is_right"]) for result in results if isinstance(result, dict) and "is_right" in result]
        values.append(min(known) if known else None)
    return values
