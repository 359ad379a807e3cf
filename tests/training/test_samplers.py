"""Which tasks a run draws: by the success of their pools so far, from a state of JSON values alone."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from rlf.spec.models import TaskSampler
from rlf.training.collection import open_sampler
from rlf.training.counting import draw_tasks
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
    # 80 % of the draws from the kind whose groups differ and 20 % from all: .87, .07 and .07
    assert last["even"] > 0.7 * last.total() and min(last[kind] for kind in CHANCES) > 0.04 * last.total()


def test_the_kind_that_is_drawn_moves_on_with_what_the_policy_can_do():
    sampler, state, shares = open_sampler(TaskSampler.POOLS, TASKS, 0, 8), {}, []
    for cursor in range(0, 600, 10):
        chances = CHANCES if cursor < 300 else {"easy": 1.0, "even": 1.0, "hard": 0.5}
        tasks, state = sampler.draw(state, cursor, 10)
        state = sampler.note(state, [item for _, task in tasks for item in play(task, chances=chances)])
        shares.append(Counter(task.kind for _, task in tasks))
    assert sum(one["even"] for one in shares[20:30]) > 70 and sum(one["hard"] for one in shares[-10:]) > 70


def test_what_is_known_of_a_pool_fades_with_the_rollouts_of_all_pools():
    sampler = open_sampler(TaskSampler.POOLS, TASKS, 0, 8)  # three pools: the half-life is 96 rollouts
    state = sampler.note({}, play(TASKS[2]))
    assert state["kind hard"]["tries"] == 8.0
    for _ in range(12):
        state = sampler.note(state, play(TASKS[1]))
    assert state["kind hard"]["tries"] == pytest.approx(4.0) and state["kind hard"]["wins"] == 0.0
    # of 8 a group, fading by 2^(-8/96) each: 8 (1 - 2^-1) / (1 - 2^(-1/12))
    assert state["kind even"]["tries"] == pytest.approx(8 * 0.5 / (1 - 2 ** (-1 / 12)))


def test_a_pool_waits_that_teaches_less_than_half_of_what_the_best_does():
    sampler = open_sampler(TaskSampler.POOLS, TASKS, 0, 2)
    # Of two rollouts with p of Beta(a, b): 1 - a(a+1)/n(n+1) - b(b+1)/n(n+1) = 2ab/n(n+1), with n = a + b; times b/n.
    known = {
        "even": (15.5, 15.5, 480.5 / 992 / 2),
        "easy": (6.5, 0.5, 6.5 / 56 * 0.5 / 7),
        "hard": (2.5, 8.5, 42.5 / 132 * 8.5 / 11),
    }
    state = {f"kind {kind}": {"wins": a - 0.5, "tries": a + b - 1} for kind, (a, b, _) in known.items()}
    assert {kind: sampler._worth(state[f"kind {kind}"]) for kind in known} == pytest.approx(
        {kind: worth for kind, (_, _, worth) in known.items()}
    )
    # .008 is below half of .249, and .242 is not; each pool has a third of the tasks
    assert sampler._weigh(state) == pytest.approx(
        {"kind easy": 0.2 / 3, "kind even": 0.4 + 0.2 / 3, "kind hard": 0.4 + 0.2 / 3}
    )
    assert sampler._worth({}) == pytest.approx(0.25 / 2) and sampler._weigh({})["kind even"] == pytest.approx(1 / 3)


def test_a_kind_that_is_nearly_learnt_makes_room_for_one_that_has_just_begun_to_succeed():
    sampler = open_sampler(TaskSampler.POOLS, TASKS, 0, 8)
    state = {"kind easy": {"wins": 88, "tries": 100}, "kind even": {"wins": 88, "tries": 100}}
    weights = sampler._weigh({**state, "kind hard": {"wins": 1, "tries": 20}})
    assert weights["kind hard"] == pytest.approx(0.8 + 0.2 / 3)  # by chance alone .64, .64 and .40: all were open


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


def test_what_cannot_be_learnt_from_is_not_counted():
    sampler = open_sampler(TaskSampler.POOLS, TASKS, 0, 8)
    broken = [replace(item, reward=None, success=None) for item in play(TASKS[1])]
    assert sampler.note({}, broken) == {}


def test_each_kind_and_each_seed_has_an_order_of_its_own():
    def orders(seed):
        drawn, _ = open_sampler(TaskSampler.POOLS, TASKS, seed, 8).draw({}, 0, 24)
        names = [task.id for _, task in drawn]
        return [tuple(name[4:] for name in names if name.startswith(kind)) for kind in CHANCES]

    assert len({*orders(0), *orders(1)}) == 6
