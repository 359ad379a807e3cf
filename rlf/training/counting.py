"""Whether a trajectory counts, and what broke one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlf.rollout.calls import find_broken
from rlf.rollout.rollout import Rollout
from rlf.training.rollouts import is_evaluation
from rlf.types.score import Score, Scored, ScoreState
from rlf.types.trajectory import StopReason, Trajectory
from rlf.types.world import WorldRecord

SAMPLER = "the sampler"


class Cause(NamedTuple):
    """What took a trajectory's reward."""

    name: str
    """`tool 'search'`, `reward term 'good'`, `world 'shop'`, or the sampler."""
    error: str
    may_pass: bool = True
    """Whether playing it again may give it one; False where the row itself is why."""


def counts(scored: Scored) -> bool:
    """Whether a trajectory can be learnt from: it has a reward and the policy sampled something."""
    return scored.reward is not None and scored.trajectory.num_sampled > 0


def has_answered(scored: Scored) -> bool:
    """Whether the policy played the trajectory; one of a model behind a server has turns, no tokens."""
    return counts(scored) or (scored.reward is not None and not scored.trajectory.tokens)


def find_cause(scored: Scored) -> Cause | None:
    """What broke a trajectory; None when it has a reward, and in an evaluation a success."""
    if scored.reward is not None:
        return _missing_success(scored) if is_evaluation(scored.trajectory.id) else None
    trajectory = scored.trajectory
    error = trajectory.error or ""
    if trajectory.stop is not StopReason.INFRA_FAILURE:
        return _missing_term(scored.scores)
    if trajectory.world is not None and trajectory.world.failed is not None:
        return Cause(world_name(trajectory.world), error)
    broken = find_broken(trajectory.calls)
    return Cause(tool_name(broken.call.name) if broken else SAMPLER, error)


def _missing_success(scored: Scored) -> Cause | None:
    """The success term where it should have a value and has none: a reward without it says nothing of success."""
    first = scored.scores[0] if scored.scores and scored.success is None else None
    if first is None or first.state is ScoreState.GATED:
        return None
    return Cause(term_name(first.term), first.reason, first.state.may_pass)


def _missing_term(scores: Sequence[Score]) -> Cause | None:
    """The term without whose value there is no reward, one that may have it another time before others."""
    missing = sorted(
        (score for score in scores if score.value is None and score.weight), key=lambda score: not score.state.may_pass
    )
    if not missing:  # it was not scored, or the sum is not a finite number
        return None
    return Cause(term_name(missing[0].term), missing[0].reason, missing[0].state.may_pass)


def term_name(term: str) -> str:
    """The name of a reward term among causes."""
    return f"reward term {term!r}"


def tool_name(tool: str) -> str:
    """The name of a tool among causes."""
    return f"tool {tool!r}"


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
