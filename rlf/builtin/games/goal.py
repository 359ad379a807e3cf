"""The outcome of rooms and bisect: whether the tool's structured results say that the goal was reached."""

from __future__ import annotations

from rlf.types import Trajectory

__all__ = ["reached"]


def reached(trajectory: Trajectory) -> float:
    """1 if a result says `is_goal`, else 0; a reward function."""
    results = (record.result.structured for record in trajectory.calls)
    return float(any(isinstance(result, dict) and result.get("is_goal") is True for result in results))
