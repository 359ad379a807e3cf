"""Scored trajectories of few tokens, made by hand."""

from __future__ import annotations

from rlf.rollout.rollout import Rollout, TokenRecord
from rlf.types import Scored, StopReason, Task, Trajectory, Turn


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


def played(rollout: Rollout, num_turns: int, reward: float | None = 1.0) -> Scored:
    """A prompt token, then turns of two tokens with an observation of one, the last without."""
    prefix = rollout.prefix
    record = TokenRecord([1]) if prefix is None else prefix.record()
    turns = [] if prefix is None else [*prefix.turns]
    for number in range(len(turns), num_turns):
        start = len(record.tokens)
        record.act([5, 6], [-1.0, -1.0])
        if number < num_turns - 1:
            record.observe([7])
        turns.append(Turn(start, start + 2, len(record.tokens), ""))
    trajectory = Trajectory(
        rollout.id, rollout.task, rollout.sample_index, record.tokens, record.action_mask, record.rollout_logprobs,
        tuple(turns), StopReason.ANSWERED, "a", num_prefix_turns=0 if prefix is None else prefix.num_turns,
        prefix_of="" if prefix is None else prefix.trajectory.id,
    )  # fmt: skip
    return Scored(trajectory, (), reward, reward)
