"""The metrics of a step, whichever engine made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlf.rollout.metrics import dead_share, rollout_metrics, wait_share
from rlf.types.score import Scored


def step_metrics(
    collected: Sequence[Scored], used: Sequence[Scored], *, num_groups: int, own: Mapping[str, float]
) -> dict[str, float]:
    """Metrics of a step's trajectories, and those that its engine measured.

    Args:
        used: the trajectories that the update was given.
        num_groups: groups that dynamic filtering kept.
        own: the engine's losses and times; throughput follows from `time/generate_s` and `time/update_s`.
    """
    metrics = {**rollout_metrics(collected), **own}
    metrics["groups/dead_share"] = dead_share(collected)
    metrics["groups/kept"] = float(num_groups)
    metrics["tools/wait_share"] = wait_share(collected)
    if generate_s := own.get("time/generate_s"):
        num_sampled = sum(item.trajectory.num_sampled for item in collected)
        metrics["throughput/generate_tokens_per_s"] = num_sampled / generate_s
    if update_s := own.get("time/update_s"):
        metrics["throughput/update_tokens_per_s"] = sum(len(item.trajectory.tokens) for item in used) / update_s
    return metrics
