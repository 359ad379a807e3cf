"""Which tasks a run draws: by the success of their pools so far, from a state of JSON values alone."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from rlf.spec.models import TaskSampler
from rlf.training.counting import draw_tasks
from rlf.training.samplers import open_sampler
from rlf.types import Task

from .trajectories import scored

TASKS = [Task(f"{kind}{number}", (), kind=kind) for number in range(8) for kind in ("easy", "even", "hard")]
CHANCES = {"easy": 1.0, "even": 0.5, "hard": 0.0}


def play(task, num=8, chances=CHANCES):
    """A group: as many of its rollouts succeed as its kind says."""
    items = [scored(task.id, float(number < chances[task.kind] * num)) for number in range(num)]
    return [replace(item, trajectory=replace(item.trajectory, task=task)) for item in items]


def steps(sampler, count, state=None, cursor=0, size=10):
    """The tasks of so many steps, and the state after them; it survives JSON at every step."""
    drawn, state = [], state or {}
    for _ in range(count):
        tasks, state = sampler.draw(state, cursor, size)
        assert [position for position, _ in tasks] == list(range(cursor, cursor + size))
        cursor += size
        state = json.loads(json.dumps(sampler.note(state, [item for _, task in tasks for item in play(task)])))
        drawn.append([task for _, task in tasks])
    return drawn, state, cursor


def test_passes_draw_what_a_run_without_a_sampler_draws():
    sampler = open_sampler(TaskSampler.PASSES, TASKS, 3, 8)
    assert sampler.draw({}, 20, 10) == (list(draw_tasks(TASKS, 3, 20, 10)), {})
    assert sampler.note({}, play(TASKS[0])) == {} and sampler.metrics({}, play(TASKS[0])) == {}


def test_pools_draw_mostly_the_kind_that_succeeds_now_and_then_and_no_kind_never():
    drawn, _, _ = steps(open_sampler(TaskSampler.POOLS, TASKS, 0, 8), 40)
    first, last = Counter(task.kind for task in drawn[0]), Counter(task.kind for step in drawn[10:] for task in step)
    assert max(first.values()) - min(first.values()) <= 1  # nothing is known yet
    # 80 % of the draws by the chance of a mixed group: of 32 right or wrong ones 1 - (33/34)^8 = .21; 20 % evenly
    assert 0.5 < last["even"] / last.total() < 0.7 and min(last[kind] for kind in CHANCES) > 0.15 * last.total()


def test_the_weight_of_a_kind_is_the_chance_that_a_group_of_it_teaches():
    sampler = open_sampler(TaskSampler.POOLS, TASKS, 0, 2)
    # groups of two: 1 - p^2 - (1 - p)^2, with p by the rule of succession: 2/4, and 1/4 of 0/2 tries; by default 1/2
    state = {"kind even": {"wins": 1.0, "tries": 2.0}, "kind hard": {"wins": 0.0, "tries": 2.0}}
    assert sampler._weigh(state) == pytest.approx(
        {"kind easy": 0.8 * 4 / 11 + 0.2 / 3, "kind even": 0.8 * 4 / 11 + 0.2 / 3, "kind hard": 0.8 * 3 / 11 + 0.2 / 3}
    )


def test_a_task_solved_by_its_whole_group_is_retired_until_all_of_its_kind_are():
    tasks = [task for task in TASKS if task.kind == "easy"]
    drawn, state, _ = steps(open_sampler(TaskSampler.POOLS, tasks, 0, 8), 4, size=4)
    ids = [task.id for step in drawn for task in step]
    assert len(set(ids[:8])) == 8 and not any("#" in name for name in ids[:8])
    assert {name.partition("#")[0] for name in ids[8:]} == set(ids[:8])  # all come again
    assert open_sampler(TaskSampler.POOLS, tasks, 0, 8).metrics(state, play(tasks[0])) == {
        "draws/easy": 1.0,
        "draws/retired": 8.0,
    }


def test_a_task_that_failed_comes_again_with_the_next_pass_as_another_group():
    tasks = [Task(f"t{number}", ()) for number in range(3)]
    sampler = open_sampler(TaskSampler.POOLS, tasks, 0, 8)
    first, state = sampler.draw({}, 0, 3)
    assert sorted(task.id for _, task in first) == ["t0", "t1", "t2"]
    hard = {None: 0.5}
    state = sampler.note(state, [item for _, task in first for item in play(task, chances=hard)])
    again, _ = sampler.draw(state, 3, 3)
    assert sorted(task.id for _, task in again) == ["t0#1", "t1#1", "t2#1"]
    assert "t0#1" not in sampler.note(state, play(replace(tasks[0], id="t0#1"), chances=hard))["task t0"]["retired"]


def test_a_resume_from_the_state_draws_what_an_uninterrupted_run_draws():
    whole, _, _ = steps(open_sampler(TaskSampler.POOLS, TASKS, 5, 8), 12)
    _, state, cursor = steps(open_sampler(TaskSampler.POOLS, TASKS, 5, 8), 7)
    rest, _, _ = steps(open_sampler(TaskSampler.POOLS, TASKS, 5, 8), 5, state, cursor)
    assert rest == whole[7:]
    other, _, _ = steps(open_sampler(TaskSampler.POOLS, TASKS, 6, 8), 12)
    assert other != whole


def test_what_cannot_be_learnt_from_is_not_counted_and_old_rollouts_fade():
    sampler = open_sampler(TaskSampler.POOLS, TASKS, 0, 8)
    broken = [replace(item, reward=None, success=None) for item in play(TASKS[1])]
    assert sampler.note({}, broken) == {}
    _, state, _ = steps(sampler, 40)
    assert all(pool["tries"] <= 32 for pool in state.values())
