"""The response of `execute` to OpenRLHF for a trajectory, and how one is left out of the loss there.

OpenRLHF wants one number as reward for every trajectory of a group, and takes no less than the whole group. It divides
each micro-batch's numbers by its sampled tokens, so that a micro-batch without any ends the job (ZeroDivisionError) or
makes its loss NaN. A trajectory that is left out, since it has no reward or the policy sampled nothing, therefore
stands in its batch with one sampled token and, as its reward, the mean reward of the others of its group, by which the
group's mean, the baseline, is the others' alone.

With `group_norm`, `dr_grpo` and `rloo` the advantage of that token is 0, to the 2^-14 that rewards are rounded to: it
has no part in the policy loss. Estimators that normalise over the batch (`reinforce`, `reinforce_baseline`, `gae`) give
it what a trajectory of average reward gets; KL and entropy terms count it like any token. What stays: each such
trajectory adds 1 to the sampled tokens that the loss is divided by (with `seq-mean-token-mean` and GSPO 1 to its
trajectories),
and OpenRLHF's standard deviation of the group is over all n members, so that with k of them left out `group_norm`
advantages are sqrt((n - 1) / (n - k - 1)) times what they would be among the others; `rloo` ones
n (n - k - 1) / ((n - 1) (n - k)) times. OpenRLHF's metrics of rewards and lengths count it. The lineage counts it in
`unscorable` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.chat.encoding import Vision
from rlf.engines.openrlhf.actor.groups import Group, round_reward
from rlf.rewards.function import RewardFunction
from rlf.training.counting import counts
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason, Trajectory


@dataclass(frozen=True, slots=True)
class StandIn:
    """Tokens with one sampled token, which OpenRLHF gets for a trajectory that is left out."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Natural log of the sampler's probability at `position`, aligned with `tokens`."""
    position: int
    """Offset of the sampled token, at least 1."""
    images: tuple[str, ...] = ()
    """The images that `tokens` hold places of."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> StandIn | None:
        """The trajectory itself with only its first sampled token in the loss; None when nothing was sampled."""
        if not trajectory.num_sampled:
            return None
        first = trajectory.action_ranges[0][0]
        return cls(trajectory.tokens, trajectory.rollout_logprobs, first, trajectory.images)


def training_response(scored: Scored, reward: RewardFunction, params: Any, vision: Vision | None) -> dict[str, Any]:
    """The response for a trajectory that counts; its tokens are those that were sampled, bit for bit."""
    trajectory = scored.trajectory
    assert scored.reward is not None and counts(scored), f"{trajectory.id} does not count"
    tensors = None if vision is None else vision.tensors(trajectory.images)
    return _response(scored, round_reward(scored.reward), reward, params) | {"mm_train_inputs": tensors}


def stand_in_response(
    scored: Scored, stand_in: StandIn, group: Group, reward: RewardFunction, params: Any, vision: Vision | None
) -> dict[str, Any]:
    """The response for a trajectory that is left out, once its group is over."""
    return _response(scored, group.filler, reward, params) | {
        "observation_tokens": list(stand_in.tokens),
        "action_ranges": [(stand_in.position, stand_in.position + 1)],
        "rollout_log_probs": None if params.logprobs is None else list(stand_in.logprobs),
        "truncated": False,
        "mm_train_inputs": None if vision is None else vision.tensors(stand_in.images),
    }


def evaluation_response(scored: Scored, reward: RewardFunction, params: Any) -> dict[str, Any]:
    """The response for an evaluation; without a reward it counts as 0 in OpenRLHF's metrics, not in the lineage."""
    return _response(scored, scored.reward or 0.0, reward, params)


def _response(scored: Scored, value: float, reward: RewardFunction, params: Any) -> dict[str, Any]:
    trajectory = scored.trajectory
    ranges = trajectory.action_ranges
    num_actions = sum(end - start for start, end in ranges)
    assert num_actions == trajectory.num_sampled, f"{num_actions} in {ranges} of {trajectory.id}"
    return {
        "observation_tokens": list(trajectory.tokens),
        "action_ranges": ranges,
        "rollout_log_probs": None if params.logprobs is None else list(trajectory.rollout_logprobs),
        "reward": value,
        "scores": value,
        "truncated": trajectory.stop is StopReason.LENGTH,
        "extra_logs": _logs(scored, reward),
    }


def _logs(scored: Scored, reward: RewardFunction) -> Mapping[str, float]:
    """Numbers for OpenRLHF's own loggers; the same keys for every trajectory, which it insists on."""
    values = {score.term: score.value for score in scored.scores}
    return {
        **{f"reward/{term.name}": float(values.get(term.name) or 0.0) for term in reward.terms},
        "success": float(scored.success or 0.0),
        "unscorable": float(scored.reward is None),
        "turns": float(len(scored.trajectory.turns)),
        "tool_calls": float(len(scored.trajectory.calls)),
        "sampled_tokens": float(scored.trajectory.num_sampled),
    }
