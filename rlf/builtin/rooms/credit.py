"""Credit turn by turn: which of a trajectory's doors were right, as the tool's structured results say."""

from __future__ import annotations

from rlf.builtin.games.goal import credit_turns
from rlf.types import Trajectory

__all__ = ["right_doors"]


def right_doors(trajectory: Trajectory) -> list[float | None]:
    """1 or 0 for each turn with a call that was answered, None for any other; a reward function for `stage: turn`.

    A door of another vault than the question's is wrong.
    """
    return credit_turns(trajectory, subject="vault", key="is_right")
