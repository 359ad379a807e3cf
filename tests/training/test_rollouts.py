"""Which rollouts are made follows from the seed and their place alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch

from rlf.core.identity import derive_seed
from rlf.training.branches import draw_prefix, opening_rollouts
from rlf.training.counting import draw_tasks, evaluation_rollout, greedy_rollouts, training_rollout
from rlf.types import Task, Turn

from .trajectories import scored

TASKS = [Task(f"q{number}", ()) for number in range(5)]


def test_each_pass_takes_every_task_once_in_an_order_of_its_own() -> None:
    drawn = [task.id for _, task in draw_tasks(TASKS, 7, 0, 15)]
    passes = [[id_.partition("#")[0] for id_ in drawn[start : start + 5]] for start in (0, 5, 10)]
    assert all(sorted(each) == [task.id for task in TASKS] for each in passes)
    assert len({tuple(each) for each in passes}) > 1


def test_the_order_of_a_pass_follows_from_the_seed_and_the_pass() -> None:
    def order(seed: int, number: int) -> list[int]:
        tasks = [Task(str(index), ()) for index in range(20)]
        return [int(task.id.partition("#")[0]) for _, task in draw_tasks(tasks, seed, 20 * number, 20)]

    assert (
        order(7, 1) == torch.randperm(20, generator=torch.Generator().manual_seed(derive_seed(7, "order", 1))).tolist()
    )
    assert len({tuple(order(seed, number)) for seed in (7, 8) for number in (0, 1)}) == 4


def test_a_task_of_a_later_pass_is_a_group_of_its_own() -> None:
    drawn = [task.id for _, task in draw_tasks(TASKS, 7, 0, 15)]
    assert Counter(drawn).most_common(1)[0][1] == 1
    assert sorted(drawn[:5]) == [task.id for task in TASKS]
    assert sorted(drawn[5:10]) == [f"{task.id}#1" for task in TASKS]


def test_tasks_drawn_in_parts_are_those_drawn_at_once() -> None:
    whole = list(draw_tasks(TASKS, 3, 0, 12))
    parts = [pair for first in range(0, 12, 4) for pair in draw_tasks(TASKS, 3, first, 4)]
    assert parts == whole
    assert [position for position, _ in whole] == list(range(12))


def test_ids_and_seeds_of_rollouts_name_their_place() -> None:
    rollout = training_rollout(TASKS[0], 3, 1, seed=9)
    assert (rollout.id, rollout.seed) == ("train/3/1", derive_seed(9, "rollout", 3, 1))
    assert (rollout.task, rollout.sample_index) == (TASKS[0], 1)
    again = training_rollout(TASKS[0], 3, 1, seed=9, num_tries=2)
    assert (again.id, again.seed) == ("train/3/1/2", derive_seed(9, "rollout", 3, 1, 2))
    first, later = (evaluation_rollout(TASKS[0], "sampled", 0, 9, step) for step in (0, 40))
    assert (first.id, later.id) == ("eval/sampled/0/q0/0", "eval/sampled/40/q0/0")
    assert first.seed == later.seed == derive_seed(9, "eval", "sampled", "q0", 0)
    assert (first.task, first.sample_index) == (TASKS[0], 0)
    assert evaluation_rollout(TASKS[0], "greedy", 0, 9, None).id == "eval/greedy/q0/0"


def test_each_task_that_is_kept_has_one_greedy_rollout() -> None:
    kept = [scored("a", 1.0), scored("a", 0.0, sampled=2), scored("b", 1.0)]
    first, second = greedy_rollouts(kept, 5, 8)
    assert (first.id, second.id) == ("train/0/greedy", "train/0/greedy")
    assert (first.task.id, second.task.id) == ("b", "a")
    assert first.sample_index == 8, "the place after the sampled ones"
    assert (first.seed, second.seed) == (derive_seed(5, "train/0/b"), derive_seed(5, "train/0/a"))


def test_a_greedy_rollout_goes_by_the_tasks_first_trajectory() -> None:
    kept = [scored("a", 1.0), scored("a", 0.0)]
    kept[1] = replace(kept[1], trajectory=replace(kept[1].trajectory, id="train/7/1"))
    assert greedy_rollouts(kept, 5, 8)[0].id == "train/0/greedy"


def test_each_task_is_opened_once_and_anew_in_a_later_pass() -> None:
    rollouts = [
        training_rollout(task, position, sample, 0)
        for position, task in draw_tasks(TASKS, 7, 0, 10)
        for sample in range(2)
    ]
    opened = opening_rollouts(rollouts, 0)
    assert [each.task.id for each in opened] == [each.task.id for each in rollouts[::2]]
    assert len({each.seed for each in opened}) == len({each.id for each in opened} - {r.id for r in rollouts}) == 10


def test_each_state_of_a_trajectory_is_drawn_about_as_often_and_follows_from_the_seed() -> None:
    turns = [Turn(start, start + 1, start + 1 + (start < 3), "") for start in (1, 3)]
    whole = replace(scored("a", 1.0).trajectory, turns=tuple(turns))
    kept = [draw_prefix(whole, seed).num_turns for seed in range(200)]
    assert kept == [draw_prefix(whole, seed).num_turns for seed in range(200)]
    assert kept.count(0) + kept.count(1) == 200 and 70 < kept.count(1) < 130
