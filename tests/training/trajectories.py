"""Scored trajectories of two tokens, made by hand."""

from __future__ import annotations

from rlf.types import Scored, StopReason, Task, Trajectory


def scored(task: str, reward: float | None, *, sampled: int = 1, stop: StopReason = StopReason.ANSWERED) -> Scored:
    """A prompt token and then sampled ones."""
    length = 1 + sampled
    trajectory = Trajectory(
        id=f"train/0/{task}",
        task=Task(task, ()),
        sample_index=0,
        tokens=[1] * length,
        action_mask=[False] + [True] * sampled,
        rollout_logprobs=[0.0] * length,
        turns=(),
        stop=stop,
        answer=None,
    )
    return Scored(trajectory, (), reward, reward)
