"""The collection of one step: rollouts are played until enough groups are kept.

Groups may outlive the step that began them, so that an update starts when enough groups are whole. Which groups are
late is up to the clock; that no task is lost by it is not: late ones are the next step's, whether they continue under
the new weights or are played again, and once they have been late for `MOST_STEPS` steps they are waited for, however
long their trajectories are, unless a deadline cuts the step short.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType

from rlf.core.identity import derive_seed
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Rollout
from rlf.spec.models import Late, RolloutSpec, TaskSampler, TrainSpec
from rlf.training.counting import (
    Drawn,
    Passes,
    Sampler,
    State,
    branch_rollouts,
    counts,
    draw_prefix,
    greedy_rollouts,
    keep_groups,
    next_try,
    opening_rollouts,
    training_rollout,
    tree_metrics,
)
from rlf.training.harness import Demonstrations, Harness
from rlf.training.outages import Outages
from rlf.types.events import EventSink, Interrupted
from rlf.types.policy import Policy, Sampling
from rlf.types.score import Scored
from rlf.types.task import Task
from rlf.types.trajectory import StopReason

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


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepCollection:
    """The trajectories of one step."""

    collected: Sequence[Scored]
    """All but the greedy ones."""
    kept: Sequence[Scored]
    """Those whose groups stay."""
    greedy: Sequence[Scored] | None
    """One of each task that is kept; None where the estimator needs none."""
    cursor: int
    """Tasks drawn from the training set by now, over all its passes."""
    late: tuple[int, ...] = ()
    """Positions of tasks drawn by now that later steps take."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of groups that were late, and of where tasks come from."""
    drawn: State = field(default_factory=dict)
    """What the sampler of tasks has drawn and seen by now."""

    @property
    def num_groups(self) -> int:
        """Groups that stay."""
        return len({item.trajectory.task.id for item in self.kept})

    @property
    def greedy_by_task(self) -> dict[str, float] | None:
        """Rewards of the greedy trajectories that have one; None where the estimator needs none."""
        if self.greedy is None:
            return None
        return {item.trajectory.task.id: item.reward for item in self.greedy if item.reward is not None}

    def choose_used(self, *, mask_truncated: bool) -> list[Scored]:
        """The trajectories that the update learns from; none where all of them would be masked."""
        baselines = self.greedy_by_task
        used = [item for item in self.kept if counts(item)]
        if baselines is not None:
            used = [item for item in used if item.trajectory.task.id in baselines]
        if mask_truncated and all(item.trajectory.stop is StopReason.LENGTH for item in used):
            return []
        return used

    def greedy_metrics(self) -> dict[str, float]:
        """The mean of the greedy rewards and how many are missing; empty where the estimator needs none."""
        if self.greedy is None:
            return {}
        rewards = list((self.greedy_by_task or {}).values())
        metrics = {"groups/without_greedy": float(len(self.greedy) - len(rewards))}
        return metrics | ({"reward/greedy/mean": fmean(rewards)} if rewards else {})


def open_sampler(kind: TaskSampler, tasks: Sequence[Task], seed: int, num_generations: int) -> Sampler:
    """The sampler of a run, whose groups have so many rollouts."""
    if kind is not TaskSampler.POOLS:
        return Passes(tasks, seed)
    from rlf.training.pools import Pools

    return Pools(tasks, seed, num_generations)


class Collector:
    """Plays the rollouts of a run's steps."""

    def __init__(
        self,
        policy: Policy,
        harness: Harness,
        tasks: Sequence[Task],
        train: TrainSpec,
        rollout: RolloutSpec,
        *,
        seed: int,
        emit: EventSink,
        outages: Outages,
        demonstrations: Demonstrations | None = None,
    ) -> None:
        """Takes what all steps share.

        Args:
            demonstrations: what the first steps imitate; None: all play.
            outages: pauses for what is down.
            emit: takes what there is of a collection that is cut off.
        """
        self._policy = policy
        self.harness = harness
        self._tasks = tasks
        self._sampler = open_sampler(train.sampler, tasks, seed, rollout.num_generations)
        self._train = train
        self._num_generations = rollout.num_generations
        self._seed = seed
        self._emit = emit
        self._outages = outages
        self.demonstrations = demonstrations
        self._stragglers = Stragglers(self._play_group, rollout, train, emit) if rollout.has_stragglers else None
        self._prefix_rows = rollout.prefix_rows
        self._tree = rollout.tree

    async def collect(
        self, step: int, cursor: int, late: Sequence[int] = (), drawn: State = MappingProxyType({})
    ) -> StepCollection:
        """The trajectories of a step, from the task at `cursor` on.

        Args:
            late: positions of tasks before it that no step has taken.
            drawn: what the sampler of tasks has drawn and seen before it.
        """
        if self.imitates(step):
            assert self.demonstrations is not None, "a step that imitates nothing"
            shown = await self.demonstrations.of_step(step)
            return StepCollection(shown, shown, None, cursor, tuple(late), drawn=drawn)
        num_tasks = self._train.prompts_per_step
        logger.info("step %d begins: %d tasks, %d rollouts each", step, num_tasks, self._num_generations)
        if self._stragglers is not None:
            found = await self._stragglers.take(step, cursor, late)
            rollouts = [
                Rollout(each.id, each.task, each.sample_index, derive_seed(self._seed, each.id))
                for each in (item.trajectory for item in found.collected)
            ]
            collected = await self._persist(found.collected, rollouts, self.harness.training, step, ())
            stay = {item.trajectory.task.id for item in found.kept}
            kept = [item for item in collected if item.trajectory.task.id in stay]
            return await self._finish(
                StepCollection(collected, kept, None, found.cursor, found.late, found.metrics), step
            )
        filtering = self._train.dynamic_filtering
        collected, kept = list[Scored](), list[Scored]()
        for _ in range(filtering.max_rounds if filtering else 1):
            wanted = self._train.prompts_per_step - len({item.trajectory.task.id for item in kept})
            if wanted <= 0:
                break
            tasks, drawn = self._sampler.draw(drawn, cursor, wanted)
            rollouts = self._rollouts(tasks)
            if self._prefix_rows:
                rollouts = await self._continued(rollouts, step, collected)
            scored = await self._grow(rollouts, step, collected)
            cursor += wanted
            collected += scored
            drawn = self._sampler.note(drawn, scored)  # before the next round, which takes what this one showed
            kept += keep_groups(scored, filtering)
        metrics = self._sampler.metrics(drawn, collected) | (tree_metrics(collected) if self._tree else {})
        return await self._finish(StepCollection(collected, kept, None, cursor, (), metrics, drawn), step)

    def imitates(self, step: int) -> bool:
        """Whether a step takes demonstrations."""
        return self.demonstrations is not None and step <= self.demonstrations.num_steps

    @property
    def has_stragglers(self) -> bool:
        """Whether a step may leave groups under way."""
        return self._stragglers is not None

    async def close(self, step: int) -> None:
        """Cuts off groups that were late. Args: step: the step under way."""
        if self._stragglers is not None:
            await self._stragglers.close(step)

    async def certify_agent(self) -> None:
        """Plays some tasks by the spec's agent before the first step, and keeps how its calls hang together."""
        # Calls of these tasks are in no recording that a run is played back from.
        if self.harness.agents is not None and not self.harness.tools.plays_back:
            tasks = self._tasks[: min(8, self._train.prompts_per_step)]
            self._emit(await self.harness.agents.certify(self.harness, self._policy, tasks, self._seed))

    async def _finish(self, found: StepCollection, step: int) -> StepCollection:
        """The collection with a greedy trajectory of each task that is kept, where the estimator needs one."""
        if not self._train.algorithm.needs_greedy:
            return found
        rollouts = greedy_rollouts(found.kept, self._seed, self._num_generations)
        greedy = await self._play(rollouts, self.harness.greedy, step, found.collected)
        # The greedy one is what its group is compared with: a term that is dropped for either is dropped for both.
        settled = self.harness.reward.settle([*found.kept, *greedy], step=step)
        by_id = {item.trajectory.id: item for item in settled}
        collected, kept, greedy = (
            [by_id.get(item.trajectory.id, item) for item in items] for items in (found.collected, found.kept, greedy)
        )
        return replace(found, collected=collected, kept=kept, greedy=greedy)

    async def prepare(self, step: int, cursor: int, drawn: State) -> None:
        """Begins to reset the worlds of a step, from the task at `cursor` on."""
        if self.harness.worlds is not None and self._stragglers is None and not self.imitates(step):
            tasks, _ = self._sampler.draw(drawn, cursor, self._train.prompts_per_step)
            rollouts = [each for each in self._rollouts(tasks) if not self._round_of(each)]
            await self.harness.worlds.prepare([(rollout.id, rollout.task) for rollout in rollouts])

    async def _play_group(
        self, position: int, step: int, again: bool, cut_off: Callable[[list[Scored]], None]
    ) -> list[Scored]:
        """Plays the group of one task. Played again, its rollouts have ids and seeds of their own."""
        tasks, _ = self._sampler.draw({}, position, 1)
        rollouts = self._rollouts(tasks, num_tries=step if again else 0)
        player, reward = self.harness.player(self._policy, self.harness.training), self.harness.reward
        scored = await collect(rollouts, player, reward, step=step, cut_off=cut_off, on_scored=self._outages.note_now)
        return reward.settle(scored, step=step)

    def _rollouts(self, tasks: Drawn, num_tries: int = 0) -> list[Rollout]:
        return [
            training_rollout(task, position, sample, self._seed, num_tries)
            for position, task in tasks
            for sample in range(self._num_generations)
        ]

    async def _continued(self, rollouts: Sequence[Rollout], step: int, before: Sequence[Scored]) -> list[Rollout]:
        """One turn from a state of each task in place of whole rollouts, where that could be played."""
        whole = await self._play(opening_rollouts(rollouts, self._seed), self.harness.training, step, before)
        prefix_by_task = {
            item.trajectory.task.id: draw_prefix(item.trajectory, self._seed) for item in whole if counts(item)
        }
        return [
            replace(rollout, prefix=prefix_by_task[rollout.task.id], is_single_turn=True)
            for rollout in rollouts
            if rollout.task.id in prefix_by_task
        ]

    def _round_of(self, rollout: Rollout) -> int:
        """The round in which a rollout is played; 0 without trees."""
        return 0 if self._tree is None else self._tree.round_of(rollout.sample_index, self._num_generations)

    async def _grow(self, rollouts: Sequence[Rollout], step: int, before: Sequence[Scored]) -> list[Scored]:
        """Plays rollouts, those of trees round by round."""
        tree, sampling = self._tree, self.harness.training
        if tree is None:
            return await self._play(rollouts, sampling, step, before)
        played = list[Scored]()
        for number in range(tree.rounds + 1):
            added = [rollout for rollout in rollouts if self._round_of(rollout) == number]
            branched = branch_rollouts(added, played, tree.tree_of, self._seed)
            played += await self._play(branched, sampling, step, [*before, *played])
        return self.harness.reward.settle(played, step=step)  # groups are whole only now

    async def _play(
        self, rollouts: Sequence[Rollout], sampling: Sampling, step: int, before: Sequence[Scored]
    ) -> list[Scored]:
        scored = await self._collect(
            rollouts, sampling, step, lambda left: self._emit(Interrupted(step, [*before, *left]))
        )
        return await self._persist(scored, rollouts, sampling, step, before)

    async def _collect(
        self, rollouts: Sequence[Rollout], sampling: Sampling, step: int, cut_off: Callable[[list[Scored]], None]
    ) -> list[Scored]:
        return await collect(
            rollouts,
            self.harness.player(self._policy, sampling),
            self.harness.reward,
            step=step,
            cut_off=cut_off,
            on_scored=self._outages.note_now,
        )

    async def _persist(
        self,
        scored: Sequence[Scored],
        rollouts: Sequence[Rollout],
        sampling: Sampling,
        step: int,
        before: Sequence[Scored],
    ) -> list[Scored]:
        """The trajectories, those that an outage broke played again; tries that broke come last and do not count."""
        tries, cut = Counter[int](), list[Scored]()

        async def play(places: Sequence[int]) -> list[Scored]:
            tries.update(places)
            return await self._collect([next_try(rollouts[at], tries[at]) for at in places], sampling, step, cut.extend)

        found, replaced = await self._outages.play_broken_again(
            scored, play, lambda left: self._emit(Interrupted(step, [*before, *left, *cut]))
        )
        return self.harness.reward.settle([*found, *replaced], step=step)  # groups are whole only now
