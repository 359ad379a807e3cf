"""Many trajectories at once, each scored as soon as it ends. No barrier between them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rlf.rewards.function import RewardFunction
from rlf.rollout.loop import Rollout, Setting, play
from rlf.types.score import Scored


async def collect(rollouts: Sequence[Rollout], setting: Setting, reward: RewardFunction) -> list[Scored]:
    """Plays and scores every rollout; the result keeps their order, which is also their logical order."""

    async def play_and_score(rollout: Rollout) -> Scored:
        return await reward.score(await play(rollout, setting))

    setting.policy.open([rollout.id for rollout in rollouts])
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play_and_score(rollout)) for rollout in rollouts]
    finally:
        for rollout in rollouts:
            setting.policy.release(rollout.id)
    return [task.result() for task in tasks]
