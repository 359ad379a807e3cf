"""The outcome of rooms and bisect: whether the tool showed the treasure that was asked for."""

from __future__ import annotations

from rlf.types import Trajectory

__all__ = ["reached"]


def reached(trajectory: Trajectory) -> float:
    """1 if a result says `is_goal` and is the task's answer, else 0; a reward function.

    Another vault or box than the question's shows a treasure too: a policy that knows one would open that one alone.
    """
    results = (record.result for record in trajectory.calls if isinstance(record.result.structured, dict))
    return float(
        any(result.structured.get("is_goal") is True and result.text == trajectory.task.answer for result in results)
    )
