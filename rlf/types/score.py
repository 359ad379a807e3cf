"""Scores: what reward terms say of a trajectory. Unscorable is a third thing, never 0."""

from __future__ import annotations

from dataclasses import dataclass

from rlf.types.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Score:
    """One term's outcome for one trajectory."""

    term: str
    value: float | None
    """None when the term could not score: `reason` says why."""
    weight: float
    reason: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scored:
    """A trajectory with every term's score and the reward the estimator sees."""

    trajectory: Trajectory
    scores: tuple[Score, ...]
    reward: float | None
    """The weighted sum; None when the trajectory is unscorable and stays out of group and loss."""
    success: float | None
    """Value of the success term (the first declared) for reports; None when it could not score."""
