"""Many trajectories at once, each scored as soon as it ends. No barrier between them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from rlf.core import RunError
from rlf.core.clocks import reporting_waits, stage
from rlf.rewards.function import RewardFunction
from rlf.rollout.rollout import Rollout
from rlf.types.score import Scored
from rlf.types.trajectory import Trajectory


class Player(Protocol):
    """A player of trajectories: the setting of a model that samples tokens, or a model behind a server."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories in their logical order, before any of them is played."""

    async def play(self, rollout: Rollout, *, cut_off: Callable[[Trajectory], None] | None = None) -> Trajectory:
        """Plays one trajectory to its end.

        Args:
            cut_off: takes what there is of a trajectory that is cancelled after its first turn was sampled.
        """

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory and gives back what is kept for it. Safe to call twice."""


async def collect(
    rollouts: Sequence[Rollout],
    player: Player,
    reward: RewardFunction,
    *,
    step: int,
    cut_off: Callable[[list[Scored]], None] | None = None,
    halt: Halt | None = None,
    on_scored: Callable[[Scored], None] | None = None,
) -> list[Scored]:
    """Plays and scores every rollout; the result keeps their order, which is also their logical order.

    Halted, it gives those that were over; the others are cut off.

    Args:
        step: the step that the trajectories are for, from 1; for an evaluation the updates before it.
        cut_off: takes what there is of those with a turn, where the collection is cancelled, fails or is halted.
        halt: ends the collection early.
        on_scored: takes each trajectory as soon as it is scored.

    Raises:
        RunError: a reward term cannot continue.
    """
    sizes = Counter(rollout.task.id for rollout in rollouts)
    known: dict[str, Scored] = {}

    def keep(trajectory: Trajectory) -> None:
        known[trajectory.id] = Scored(trajectory, scores=(), reward=None, success=None)

    async def play_and_score(rollout: Rollout) -> Scored:
        trajectory = await player.play(rollout, cut_off=keep)
        keep(trajectory)
        scored = await reward.score(trajectory, step=step, group_size=sizes[rollout.task.id])
        known[rollout.id] = scored
        here.num_done += 1
        if on_scored is not None:
            on_scored(scored)
        return scored

    player.open([rollout.id for rollout in rollouts])
    try:
        with stage(f"{_phase(rollouts)} {step}", len(rollouts)) as here:
            async with reporting_waits():
                done = await _side_by_side([play_and_score(rollout) for rollout in rollouts], halt)
        over = {scored.trajectory.id for scored in done}
        left = [known[rollout.id] for rollout in rollouts if rollout.id in known and rollout.id not in over]
        if left and cut_off is not None:
            cut_off(left)
        return done
    except BaseException:
        if cut_off is not None:
            cut_off([known[rollout.id] for rollout in rollouts if rollout.id in known])
        raise
    finally:
        for rollout in rollouts:
            player.release(rollout.id)


def _phase(rollouts: Sequence[Rollout]) -> str:
    """`train`, or the modes of an evaluation, as the ids have it."""
    if not rollouts:
        return "nothing"
    heads = [rollout.id.split("/", 2) for rollout in rollouts]
    return " and ".join(dict.fromkeys(head[1] if head[0] == "eval" and head[1:] else head[0] for head in heads))


class Halt:
    """Ends a collection early, once."""

    def __init__(self) -> None:
        self.is_called = False
        self._tasks: list[asyncio.Task[Scored]] = []

    def call(self) -> None:
        """Cuts off what is not over."""
        self.is_called = True
        for task in self._tasks:
            task.cancel()

    def watch(self, tasks: list[asyncio.Task[Scored]]) -> None:
        """Takes what it may cut off."""
        self._tasks = tasks


async def _side_by_side(playing: Sequence[Coroutine[Any, Any, Scored]], halt: Halt | None) -> list[Scored]:
    """The results of those that were not cut off, in order. Raises RunError by itself where one of them does."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in playing]
            if halt is not None:
                halt.watch(tasks)
    except ExceptionGroup as failures:
        run_errors = failures.subgroup(RunError)
        if run_errors is None:
            raise
        raise run_errors.exceptions[0] from failures
    return [task.result() for task in tasks if not task.cancelled()]
