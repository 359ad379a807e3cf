"""Dynamic filtering on scored trajectories: which groups stay in the step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlf.algo.filtering import keep_groups
from rlf.spec.models import FilterSpec
from rlf.types.score import Scored


def keep_mixed_groups(scored: Sequence[Scored], settings: FilterSpec) -> list[Scored]:
    """Trajectories of the groups whose mean reward lies strictly inside the range; a group without rewards goes."""
    counted = [item for item in scored if item.reward is not None]
    if not counted:
        return []
    groups = {id_: i for i, id_ in enumerate(dict.fromkeys(item.trajectory.task.id for item in scored))}
    rewards_B = torch.tensor([item.reward for item in counted])
    group_B = torch.tensor([groups[item.trajectory.task.id] for item in counted])
    keep_B = keep_groups(rewards_B, group_B, settings.low, settings.high).tolist()
    kept = {item.trajectory.task.id for item, keep in zip(counted, keep_B, strict=True) if keep}
    return [item for item in scored if item.trajectory.task.id in kept]
