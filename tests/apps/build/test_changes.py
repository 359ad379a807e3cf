"""Worlds whose tools change them: each trajectory has tables of its own, and the change is needed and proven."""

import json
from pathlib import Path

import pytest

from rlf.apps.build.build import write_ftrl
from rlf.apps.build.folder import build_world, read_world
from rlf.apps.build.task import answer_of
from rlf.core import RlfError, hash_path
from rlf.core.callables import load_callable
from rlf.plan import compile as compile_plan
from rlf.rewards.values import text_keys, value_key
from rlf.spec import load_spec
from rlf.spec.paths import local_inputs

from .worlds import settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moves")
    build = {"worlds": 3, "changes": 0.6}
    certificate = build_world(settings(count=60, build=build, out=str(folder)), lambda *_: None)
    assert certificate.holds and certificate.figures["all"]["gold/f1"] == 1.0
    return folder


def played(folder, task, *, skips_changes=False):
    """The values that the gold calls find in a world of its own."""
    world, values = load_callable(f"{folder}/tools.py:World")(), []
    world.reset()
    for step in task.steps:
        is_change = task.steps[0].tool.startswith(("exchange", "swap", "switch")) and step is task.steps[0]
        if is_change and skips_changes:
            values.append(step.gold)
            continue
        found = getattr(world, step.tool)(**step.filled(values))
        values.append(found["receipt"] if is_change else found)
    num_changes = world.score()["changes"]
    world.close()
    return values, num_changes


def test_gold_calls_change_the_world_and_find_the_answer_which_is_another_without_the_change(folder):
    _, tasks = read_world(folder)
    changing = [task for task in tasks if task.question.casefold().find("exchange") >= 0]
    assert len(changing) >= 10
    for task in changing:
        values, num_changes = played(folder, task)
        assert values == [step.gold for step in task.steps] and num_changes == 2
        assert all(
            value_key(step.gold) in text_keys(json.dumps(value)) for step, value in zip(task.steps, values, strict=True)
        )
    for task in changing:
        if all(len(step.needs) < 2 for step in task.steps) and len(task.steps) == 2:
            values, num_changes = played(folder, task, skips_changes=True)
            assert answer_of(task, values) != task.answer and num_changes == 0


def test_the_spec_has_a_world_of_each_trajectorys_own_with_the_same_tools(folder):
    spec = load_spec([folder / "spec.yaml"]).spec
    compile_plan(load_spec([folder / "spec.yaml"]))
    _, tasks = read_world(folder)
    shown = {tool for task in tasks for tool in task.tools}
    assert shown <= {tool.name for tool in spec.env.tools} and spec.tools == ()
    recorded = {Path(file.path).name: file.sha256 for file in local_inputs(spec) if file.role == "data"}
    assert all(recorded[name] == hash_path(folder / name) for name in ("certificate.json", "world.db"))


def test_rows_of_ftrl_and_nested_types_are_refused(folder):
    with pytest.raises(RlfError, match="keep no state"):
        list(write_ftrl(folder))
    with pytest.raises(RlfError, match=r"complexity\.types: 1"):
        build_world(settings(complexity={"types": 2}, build={"changes": 0.5}, out=str(folder / "x")), lambda *_: None)
