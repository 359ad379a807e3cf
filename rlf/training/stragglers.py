"""Groups may outlive the step that began them, so that an update starts when enough groups are whole.

Which groups are late is up to the clock; that no task is lost by it is not: late ones are the next step's, whether they
continue under the new weights or are played again, and once they have been late for `MOST_STEPS` steps they are waited
for, however long their trajectories are, unless a deadline cuts the step short.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rlf.spec.models import Late, RolloutSpec, TrainSpec
from rlf.training.counting import keep_groups
from rlf.types.events import EventSink, Interrupted
from rlf.types.score import Scored

MOST_STEPS = 4
"""Steps that a group may be late for: its tokens are of so many weights at the most."""
PlayGroup = Callable[[int, int, bool, Callable[[list[Scored]], None]], Awaitable[list[Scored]]]
"""Plays and scores the group of the task at a position, for a step, again or not; the last argument takes what there is
of it where it is cut off."""


@dataclass(frozen=True, slots=True)
class WholeGroups:
    """The groups that a step takes."""

    collected: list[Scored]
    """The trajectories of the groups that are whole."""
    kept: list[Scored]
    """Those of them whose groups stay."""
    cursor: int
    """Tasks drawn from the training set by now, over all its passes."""
    late: tuple[int, ...]
    """Positions of the tasks that later steps take."""
    metrics: dict[str, float]


class Stragglers:
    """The groups under way, over all steps."""

    def __init__(self, play: PlayGroup, rollout: RolloutSpec, train: TrainSpec, emit: EventSink) -> None:
        """Nothing is under way.

        Args:
            emit: takes what there is of groups that are cut off.
        """
        self._play = play
        self._rollout = rollout
        self._filtering = train.dynamic_filtering
        self._wanted = train.prompts_per_step
        self._most = math.ceil(train.prompts_per_step * rollout.oversample)
        self._emit = emit
        self._tasks: dict[int, asyncio.Task[list[Scored]]] = {}
        """Groups by the position of their task."""
        self._since: dict[int, int] = {}
        """The step that first took place without a group, by the position of its task."""
        self._cut: list[Scored] = []

    async def take(self, step: int, cursor: int, late: Sequence[int]) -> WholeGroups:
        """The groups of a step, once enough are whole.

        Args:
            cursor: position of the next task.
            late: positions that earlier steps left.

        Raises:
            RunError: a reward term cannot continue.
        """
        first, loop = cursor, asyncio.get_running_loop()
        for position in late:
            self._since.setdefault(position, step - 1)
            self._start(position, step, again=True)
        owed = {at for at in late if step - self._since[at] >= MOST_STEPS}
        rounds = 1 if self._filtering is None else self._filtering.max_rounds
        limit = cursor + rounds * self._most
        deadline = None if self._rollout.deadline_s is None else loop.time() + self._rollout.deadline_s
        while True:
            whole = {at: self._tasks[at].result() for at in sorted(self._tasks) if self._tasks[at].done()}
            kept = [at for at, scored in whole.items() if keep_groups(scored, self._filtering)]
            missing = self._most - len(kept) - (len(self._tasks) - len(whole))
            for position in range(cursor, min(cursor + max(0, missing), limit)):
                self._start(position, step)
                cursor = position + 1
            pending = [task for task in self._tasks.values() if not task.done()]
            left_s = None if deadline is None or not kept else deadline - loop.time()
            is_enough = len(kept) >= self._wanted and whole.keys() >= owed
            if is_enough or not pending or (left_s is not None and left_s <= 0):
                break
            await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        return await self._take(step, whole, kept[: self._wanted], (first, cursor))

    async def _take(
        self, step: int, whole: dict[int, list[Scored]], kept: list[int], drawn: tuple[int, int]
    ) -> WholeGroups:
        """Takes the kept groups, and whole ones that do not stay; others are late."""
        taken = [at for at in whole if at in kept or not keep_groups(whole[at], self._filtering)]
        for position in taken:
            del self._tasks[position]
            self._since.pop(position, None)
        pending = sum(not task.done() for task in self._tasks.values())
        metrics = {"groups/late": float(pending), "groups/carried": float(sum(at < drawn[0] for at in taken))}
        left = tuple(sorted(self._tasks))
        if self._rollout.late is Late.DROP:
            metrics["groups/dropped"] = float(pending)
            await self._cut_off(step)
        return WholeGroups(
            [item for at in taken for item in whole[at]],
            [item for at in kept for item in whole[at]],
            drawn[1],
            left,
            metrics,
        )

    async def close(self, step: int) -> None:
        """Cuts off what is under way. Args: step: the step under way."""
        await self._cut_off(step)
        self._tasks.clear()

    def _start(self, position: int, step: int, *, again: bool = False) -> None:
        """Starts a group that is not under way."""
        if position not in self._tasks:
            play = self._play(position, step, again, self._cut.extend)
            self._tasks[position] = asyncio.ensure_future(play)

    async def _cut_off(self, step: int) -> None:
        """Ends the groups that are not whole, and emits what there is of them."""
        cut = {at: task for at, task in self._tasks.items() if not task.done()}
        for task in cut.values():
            task.cancel()
        if cut:
            await asyncio.wait(cut.values())
        for position in cut:
            del self._tasks[position]
        if self._cut:
            self._emit(Interrupted(step, list(self._cut)))
            self._cut.clear()
