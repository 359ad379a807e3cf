"""The sampler that draws tasks from the pools in which groups teach."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean
from typing import Any

from rlf.core.identity import derive_seed
from rlf.training.counting import Drawn, State, counts, order_of_pass
from rlf.types.score import Scored
from rlf.types.task import Task

_HALF_LIFE = 32
"""Rollouts a pool, of all together, after which what was seen counts half: the policy has changed since."""
_PRIOR = 0.5
"""Successes and failures before any was seen: an unknown pool teaches more often than not."""
_LEAST = 0.5
"""Of the best pool's worth: the pools below it wait."""
_EVEN = 0.2
"""Share of the draws that goes to all tasks alike: what is never drawn is forgotten, and never seen to be learnable."""


class Pools:
    """A pool is a kind of question, or where rows have no kinds a task; those wait that teach little.

    Of G rollouts with success p, not all end alike with the chance 1 - p^G - (1 - p)^G, and 1 - p is left to learn.
    Tasks are drawn alike from the pools in which the product is at least half of what it is in the best one. A task
    whose whole group succeeded is retired until all of its pool are; others come again with the pool's next pass.
    """

    def __init__(self, tasks: Sequence[Task], seed: int, num_generations: int) -> None:
        self._seed, self._num_generations = seed, max(2, num_generations)  # of one rollout no group differs
        self._pools: dict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            self._pools[_pool_of(task)].append(task)
        self._by_id = {task.id: task for task in tasks}

    def draw(self, state: State, cursor: int, count: int) -> tuple[Drawn, State]:
        """Tasks of the pools by their weights, in each by its own passes."""
        weights = self._weigh(state)
        ends = list(accumulate(weights.values()))
        # Evenly spaced points with one random offset: a pool's share of a step is its weight up to one group.
        offset = random.Random(derive_seed(self._seed, "pools", cursor)).random()
        points = [(number + offset) / count * ends[-1] for number in range(count)]
        places = [next((at for at, end in enumerate(ends) if point < end), len(ends) - 1) for point in points]
        after, drawn, names = dict(state), list[Task](), list(weights)
        for at, number in Counter(places).items():
            tasks, after[names[at]] = self._take(names[at], after.get(names[at], {}), number)
            drawn += tasks
        return list(enumerate(drawn, start=cursor)), after

    def _weigh(self, state: State) -> dict[str, float]:
        worths = {name: self._worth(state.get(name, {})) for name in self._pools}
        least = _LEAST * max(worths.values())
        open_ = {name: len(self._pools[name]) for name, worth in worths.items() if worth >= least}
        num_open, num_tasks = sum(open_.values()), len(self._by_id)
        return {
            name: (1 - _EVEN) * open_.get(name, 0) / num_open + _EVEN * len(tasks) / num_tasks
            for name, tasks in self._pools.items()
        }

    def _worth(self, pool: State) -> float:
        """The chance that a group is neither all right nor all wrong, times 1 - p, where p is Beta(wins + 1/2, ...)."""
        # By the chance alone a kind of which nine of ten succeed keeps out one that has just begun to.
        wins, tries, size = pool.get("wins", 0.0), pool.get("tries", 0.0), self._num_generations
        right, wrong, both = wins + _PRIOR, max(0.0, tries - wins) + _PRIOR, tries + 2 * _PRIOR
        # E[p^G] of Beta(a, b) is B(a + G, b) / B(a, b); and the same for 1 - p
        alike = [
            math.exp(math.lgamma(one + size) - math.lgamma(one) + math.lgamma(both) - math.lgamma(both + size))
            for one in (right, wrong)
        ]
        return float((1.0 - sum(alike)) * wrong / both)

    def _take(self, name: str, pool: State, number: int) -> tuple[list[Task], dict[str, Any]]:
        """The next tasks of a pool without those that are retired."""
        tasks, at, found = self._pools[name], int(pool.get("next", 0)), list[Task]()
        retired = set(pool.get("retired", ()))
        if len(retired) >= len(tasks):
            retired = set()
        while len(found) < number:
            turn, index = divmod(at, len(tasks))
            task = tasks[order_of_pass(derive_seed(self._seed, "pool", name), turn, len(tasks))[index]]
            at += 1
            if task.id not in retired:
                found.append(replace(task, id=f"{task.id}#{turn}") if turn else task)
        return found, {**pool, "next": at, "retired": sorted(retired)}

    def note(self, state: State, scored: Sequence[Scored]) -> State:
        """Counts successes, and retires tasks."""
        groups = defaultdict[str, list[float]](list)
        for item in scored:
            if counts(item):
                groups[item.trajectory.task.id].append(_success(item))
        fades = 0.5 ** (sum(map(len, groups.values())) / (_HALF_LIFE * len(self._pools)))
        after = {
            name: {**pool, "wins": pool.get("wins", 0.0) * fades, "tries": pool.get("tries", 0.0) * fades}
            for name, pool in state.items()
        }
        for id_, values in groups.items():
            task = self._by_id[id_ if id_ in self._by_id else id_.rpartition("#")[0]]
            pool = after.get(_pool_of(task), {})
            wins, tries = pool.get("wins", 0.0) + sum(values), pool.get("tries", 0.0) + len(values)
            retired = {*pool.get("retired", ()), *([task.id] if min(values) >= 1 else [])}
            after[_pool_of(task)] = {**pool, "wins": wins, "tries": tries, "retired": sorted(retired)}
        return after

    def metrics(self, state: State, scored: Sequence[Scored]) -> dict[str, float]:
        """The share of each kind among the groups, and how many tasks are retired."""
        kinds = {item.trajectory.task.id: item.trajectory.task.kind for item in scored}
        shares = {
            f"draws/{kind}": fmean(one == kind for one in kinds.values())
            for kind in sorted({kind for kind in kinds.values() if kind is not None})
        }
        return shares | {"draws/retired": float(sum(len(pool.get("retired", ())) for pool in state.values()))}


def _pool_of(task: Task) -> str:
    return f"kind {task.kind}" if task.kind is not None else f"task {task.id}"


def _success(item: Scored) -> float:
    value = item.success if item.success is not None else item.reward
    assert value is not None, f"{item.trajectory.id} counts and has no reward"
    return min(1.0, max(0.0, float(value)))
