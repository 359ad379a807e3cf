"""Whether a trajectory counts, and what broke one that does not."""

from __future__ import annotations

from collections.abc import Sequence

from rlf.rollout.calls import find_broken
from rlf.rollout.rollout import Rollout
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason, Trajectory
from rlf.types.world import WorldRecord

SAMPLER = "the sampler"
REWARD = "a reward term"


def counts(scored: Scored) -> bool:
    """Whether a trajectory can be learnt from: it has a reward and the policy sampled something."""
    return scored.reward is not None and scored.trajectory.num_sampled > 0


def find_cause(scored: Scored) -> str | None:
    """Why a trajectory broke, in words; None when it counts, or when playing it again would change nothing."""
    if scored.reward is not None:
        return None
    trajectory = scored.trajectory
    if trajectory.stop is not StopReason.INFRA_FAILURE:
        return REWARD
    if trajectory.world is not None and trajectory.world.failed is not None:
        return world_name(trajectory.world)
    broken = find_broken(trajectory.calls)
    return f"tool {broken.call.name!r}" if broken else SAMPLER


def world_name(world: WorldRecord) -> str:
    """The name of a world among causes."""
    return f"world {world.kind!r}"


def broken_trajectory(rollout: Rollout, prompt: Sequence[int], error: str) -> Scored:
    """The record of a rollout that could not be played: nothing is sampled, and it has no reward."""
    trajectory = Trajectory(
        id=rollout.id,
        task=rollout.task,
        sample_index=rollout.sample_index,
        tokens=list(prompt),
        action_mask=[False] * len(prompt),
        rollout_logprobs=[0.0] * len(prompt),
        turns=(),
        stop=StopReason.INFRA_FAILURE,
        answer=None,
        error=error,
    )
    return Scored(trajectory, scores=(), reward=None, success=None)
