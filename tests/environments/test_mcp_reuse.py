"""Processes of MCP servers serve one trajectory after the other, and no trajectory sees another."""

import asyncio
import logging
from pathlib import Path

import pytest

from rlf.apps.worlds.examine import TRIALS, examine_world
from rlf.environments import EnvSpec
from rlf.environments.playing import Ranges, follow, open_bench
from rlf.types import Message, Task, ToolCall

from ..warm import MCP, warm_python

SERVER = str(Path(__file__).with_name("depot_server.py"))
MOVE = ToolCall("move", {"amount": 2, "source": "hall", "target": "dock"})


def depot(log, *args, **keys):
    server = {"command": warm_python(*MCP), "args": [SERVER, str(log), *args], "start_timeout_s": 60}
    reset = {"tool": "load_scenario", "arguments": {"scenario": "{scenario}"}}
    made = {"kind": "mcp", "server": server, "reset": reset, "save": {"tool": "save_scenario"}, "after": "gold"}
    return EnvSpec.model_validate(made | {"limits": {"step_s": 30}} | keys)


def tasks(number):
    gold = [{"name": MOVE.name, "arguments": MOVE.arguments}]
    columns = [{"scenario": {"hall": 2 + at, "dock": 0}, "gold": gold} for at in range(number)]
    return [Task(f"t{at}", (Message("user", "Go."),), columns=one) for at, one in enumerate(columns)]


def num_starts(env):
    return len(Path(env.server.args[1]).read_text().splitlines())


def play(env, parts, at_once=1):
    """Episodes of (task, actions), and the number of processes that they took, `describe_tools` aside."""

    async def go():
        _ = env.tools
        before = num_starts(env)
        async with open_bench(env, [], seed=0) as bench:
            bench.numbers = iter(range(1000))
            played = []
            for start in range(0, len(parts), at_once):
                chosen = [(task, follow(actions)) for task, actions in parts[start : start + at_once]]
                played += await bench.play_together(chosen)
            return played, num_starts(env) - before

    return asyncio.run(go())


def test_a_process_serves_trajectory_after_trajectory_with_the_results_of_new_ones(tmp_path):
    parts = [(task, actions) for task in tasks(4) for actions in ([MOVE], [MOVE, MOVE], [])]
    kept, num_kept = play(depot(tmp_path / "kept"), parts, at_once=2)
    # A folder of its own keeps a process from being used twice.
    new, num_new = play(depot(tmp_path / "new", "{folder}"), parts, at_once=2)
    assert kept == new and [one.failure for one in kept] == [None] * len(parts)
    # Alone: 12 worlds and 4 goals, each played again for ends that differ from it. Else at most 2 worlds, 2 for the
    # goals, 1 untouched and another to compare it with; fewer where one is free before another would begin.
    assert num_new == 20 and num_kept <= 6


def test_a_reset_that_leaves_state_behind_is_found_before_the_next_trajectory_acts(tmp_path, caplog):
    parts = [(task, actions) for task in tasks(3) for actions in ([MOVE], [MOVE], [])]
    for task in (parts[3][0], parts[6][0]):
        del task.columns["scenario"]["dock"]  # which a load into an old scenario keeps as it was
    with caplog.at_level(logging.WARNING):
        kept, _ = play(depot(tmp_path / "log", "leaky"), parts)
    new, _ = play(depot(tmp_path / "new", "leaky", "{folder}"), parts)
    assert kept == new
    assert ["another state in a used process" in record.message for record in caplog.records].count(True) == 1


@pytest.mark.parametrize("fault", ["leaky", "sly"])
def test_the_trial_of_a_world_finds_a_reset_that_leaves_state_behind(tmp_path, fault):
    env, (task, *_) = depot(tmp_path / "log", fault), tasks(1)
    del task.columns["scenario"]["dock"]

    async def go():
        async with open_bench(env, [task], seed=0) as bench:
            return await examine_world(bench, Ranges({}, {}), TRIALS, tolerance=0.05, seen=str)

    failed = {verdict.name: verdict.words for verdict in asyncio.run(go()).failed}
    assert failed.keys() & {"reset", "determinism"}, failed


def test_a_trajectory_that_breaks_or_hangs_gives_up_its_process(tmp_path):
    task = tasks(1)[0]
    for action, words in ((ToolCall("fall_down", {}), "step"), (ToolCall("wait_long", {}), "step_s of 2 s")):
        log = tmp_path / action.name
        (first, broken, after), number = play(
            depot(log, limits={"step_s": 2}), [(task, [MOVE]), (task, [action]), (task, [MOVE])]
        )
        assert words in broken.failure and after == first
        assert number == 3  # a world, the goal's, which the last has then, and an untouched one


def test_a_reset_that_fails_in_a_used_process_is_made_in_a_new_one(tmp_path):
    task = tasks(1)[0]
    (first, second), _ = play(depot(tmp_path / "log", "frail"), [(task, [MOVE])] * 2)
    assert first.failure is None and first == second


def test_without_a_tool_that_shows_the_state_each_trajectory_has_a_process(tmp_path):
    score = {"tool": "save_scenario"}
    assert depot(tmp_path / "log").reuses
    assert not depot(tmp_path / "log", save=None, after=None, score=score).reuses
    assert not depot(tmp_path / "log", reset=None).reuses
