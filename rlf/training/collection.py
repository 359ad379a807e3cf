"""The collection of one step: rollouts are played until enough groups are kept."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

from rlf.core.identity import derive_seed
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Rollout
from rlf.spec.models import RolloutSpec, TaskSampler, TrainSpec
from rlf.training.counting import (
    Drawn,
    Passes,
    Sampler,
    State,
    counts,
    greedy_rollouts,
    keep_groups,
    next_try,
    training_rollout,
)
from rlf.training.harness import Demonstrations, Harness
from rlf.training.outages import Outages
from rlf.types.events import EventSink, Interrupted
from rlf.types.policy import Policy, Sampling
from rlf.types.score import Scored
from rlf.types.task import Task
from rlf.types.trajectory import StopReason

if TYPE_CHECKING:
    from rlf.training.stragglers import Stragglers

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
        self._stragglers: Stragglers | None = None
        if rollout.has_stragglers:
            from rlf.training.stragglers import Stragglers

            self._stragglers = Stragglers(self._play_group, rollout, train, emit)
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
        metrics = self._sampler.metrics(drawn, collected)
        if self._tree:
            from rlf.training.branches import tree_metrics

            metrics = metrics | tree_metrics(collected)
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
        from rlf.training.branches import draw_prefix, opening_rollouts

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
        from rlf.training.branches import branch_rollouts

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
