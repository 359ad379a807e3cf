"""Which rollouts a step and an evaluation make, with which ids and seeds.

All of them follow from the run's seed and a rollout's place, so that every engine samples the same tasks in the same
order, and a resumed run continues with those that an uninterrupted one would have made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlf.core.identity import derive_seed
from rlf.rollout.rollout import Prefix, Rollout
from rlf.types.score import Scored
from rlf.types.task import Task
from rlf.types.trajectory import Trajectory

_EVALUATION = "eval/"
"""The ids of an evaluation's rollouts begin with it."""


def draw_tasks(tasks: Sequence[Task], seed: int, first: int, count: int) -> Iterator[tuple[int, Task]]:
    """The tasks at positions `first` to `first + count` of a run, each with its position.

    Each pass over the training set has an order of its own. A task of a later pass has an id of its own, since its
    rollouts are another group.
    """
    order, ordered = list[int](), -1
    for position in range(first, first + count):
        number, index = divmod(position, len(tasks))
        if number != ordered:
            order, ordered = _order_of_pass(seed, number, len(tasks)), number
        task = tasks[order[index]]
        yield position, replace(task, id=f"{task.id}#{number}") if number else task


def _order_of_pass(seed: int, number: int, num_tasks: int) -> list[int]:
    """The order in which pass `number` over the training set, counted from 0, takes its tasks."""
    import torch

    generator = torch.Generator().manual_seed(derive_seed(seed, "order", number))
    order: list[int] = torch.randperm(num_tasks, generator=generator).tolist()
    return order


def training_rollout(task: Task, position: int, sample: int, seed: int, num_tries: int = 0) -> Rollout:
    """One rollout of training; a further try, after one that broke, has a seed of its own."""
    tried = (num_tries,) if num_tries else ()
    id_ = "/".join(map(str, ("train", position, sample, *tried)))
    return Rollout(id_, task, sample, derive_seed(seed, "rollout", position, sample, *tried))


def next_try(rollout: Rollout, num_tries: int) -> Rollout:
    """The rollout of training again, after tries that something outside the policy broke."""
    return replace(rollout, id=f"{rollout.id}/{num_tries}", seed=derive_seed(rollout.seed, "try", num_tries))


def opening_rollouts(rollouts: Sequence[Rollout], seed: int) -> list[Rollout]:
    """One rollout of each task, from whose states its group continues."""
    firsts: dict[str, Rollout] = {}
    for rollout in rollouts:
        firsts.setdefault(rollout.task.id, rollout)
    ids = {task: f"{first.id.rpartition('/')[0]}/prefix" for task, first in firsts.items()}
    return [Rollout(ids[task], first.task, 0, derive_seed(seed, ids[task])) for task, first in firsts.items()]


def draw_prefix(trajectory: Trajectory, seed: int) -> Prefix:
    """A state that a trajectory went through, each as likely as the others; what led there is not trained on."""
    choices = Prefix.choices(trajectory)
    return Prefix(trajectory, choices[derive_seed(seed, "prefix", trajectory.id) % len(choices)], is_trained=False)


def greedy_rollouts(kept: Sequence[Scored], seed: int, num_generations: int) -> list[Rollout]:
    """One greedy rollout of each task that has a trajectory, for estimators that need its reward."""
    firsts = {item.trajectory.task.id: item.trajectory for item in reversed(kept)}
    return [
        Rollout(f"{first.id.rpartition('/')[0]}/greedy", first.task, num_generations, derive_seed(seed, first.id))
        for first in firsts.values()
    ]


def evaluation_rollout(task: Task, mode: str, sample: int, seed: int, step: int | None) -> Rollout:
    """One rollout of an evaluation. Its seed leaves the step out, so that evaluations pair question by question.

    Args:
        step: updates before it; None where the engine does not know.
    """
    place = "" if step is None else f"{step}/"
    return Rollout(
        f"{_EVALUATION}{mode}/{place}{task.id}/{sample}", task, sample, derive_seed(seed, "eval", mode, task.id, sample)
    )


def is_evaluation(rollout_id: str) -> bool:
    """Whether a rollout is one of an evaluation."""
    return rollout_id.startswith(_EVALUATION)


def mode_of(evaluation_id: str) -> str:
    """The mode of an evaluation's rollout."""
    return evaluation_id.split("/", 2)[1]
