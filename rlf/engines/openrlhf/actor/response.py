"""What `execute` returns to OpenRLHF for a trajectory, and how one is left out of the loss there.

OpenRLHF wants one number as reward for every trajectory of a group, and takes no less than the whole group. One that
is left out, since it has no reward or the policy sampled nothing, is returned with no action ranges: its mask is zero,
so that it has no share in any loss, entropy, KL term or token count. As its reward it gets the mean reward of the
others of its group, by which the group's mean, the baseline, is the others' alone.

What stays: OpenRLHF's standard deviation of the group is over all n members, so that with k of them left out
`group_norm` advantages are sqrt((n - 1) / (n - k - 1)) times what they would be among the others; `rloo` ones
n (n - k - 1) / ((n - 1) (n - k)) times. Its metrics of rewards and lengths count it, and its mean `kl` of a step with
such a trajectory is not a number. The lineage counts it in `unscorable` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlf.chat.vision import Vision
from rlf.engines.openrlhf.actor.groups import Group, as_told, counts
from rlf.rewards.function import RewardFunction
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason


def training_response(
    scored: Scored, group: Group, reward: RewardFunction, params: Any, vision: Vision | None
) -> dict[str, Any]:
    """What a trajectory is trained on with; its tokens are those that were sampled, bit for bit.

    Pictures go along with every trajectory whose tokens hold places of some, also with one that is left out: the
    forward pass of its batch looks for them.
    """
    value = as_told(scored.reward) if scored.reward is not None and counts(scored) else group.filler
    tensors = None if vision is None else vision.tensors(scored.trajectory.images)
    return _response(scored, value, reward, params) | {"mm_train_inputs": tensors}


def evaluation_response(scored: Scored, reward: RewardFunction, params: Any) -> dict[str, Any]:
    """What OpenRLHF's own evaluation metrics count; one without a reward counts as 0 there, and not in the lineage."""
    return _response(scored, scored.reward or 0.0, reward, params)


def _response(scored: Scored, value: float, reward: RewardFunction, params: Any) -> dict[str, Any]:
    trajectory, in_loss = scored.trajectory, counts(scored)
    ranges = [(turn.start, turn.end) for turn in trajectory.turns] if in_loss else []
    num_actions = sum(end - start for start, end in ranges)
    assert not in_loss or num_actions == trajectory.num_sampled, f"{num_actions} in {ranges} of {trajectory.id}"
    return {
        "observation_tokens": list(trajectory.tokens),
        "action_ranges": ranges,
        "rollout_log_probs": None if params.logprobs is None else list(trajectory.rollout_logprobs),
        "reward": value,
        "scores": value,
        "truncated": in_loss and trajectory.stop is StopReason.LENGTH,
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
