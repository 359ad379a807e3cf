"""Credit turn by turn: how well each of a trajectory's probes halved what was possible, and whether it ended well."""

from __future__ import annotations

from rlf.builtin.games.goal import credit_turns, reached
from rlf.types import Trajectory

__all__ = ["halvings"]


def halvings(trajectory: Trajectory) -> list[float | None]:
    """0 to 1 for each turn with a call that was answered; a reward function for `stage: turn`.

    A last turn without a call is worth 1 if the box was found, else 0. A probe of a box that is found, or of another
    one than the question's, is worth 0.
    """
    values = credit_turns(trajectory, subject="box", key="halving")
    if values and not trajectory.turns[-1].calls:
        values[-1] = reached(trajectory)
    return values
