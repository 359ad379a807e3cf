"""Tasksets of verifiers v1, in the environment of `.venv/worlds/verifiers` that has the package."""

import sys
from pathlib import Path

import pytest

from rlf.environments import EnvSpec
from rlf.environments.workers import verifiers_tasks
from rlf.types import Message, StopReason, Task

from ..warm import warm_python
from .conftest import STOP, call

PYTHON = Path(sys.prefix) / "worlds" / "verifiers" / "bin" / "python"
TASKSET = Path(__file__).with_name("verifiers_capitals.py")
SALES = Path(__file__).with_name("verifiers_till.py")


def find_python():
    """A Python that has imported verifiers; skips the test where it is not installed."""
    if not list(PYTHON.parents[1].glob("lib/*/site-packages/verifiers")):
        pytest.skip(f"{PYTHON} has no verifiers: `make .venv/worlds/ready` installs it")
    return warm_python(*verifiers_tasks._USED, python=str(PYTHON))


@pytest.fixture
def env():
    return {"kind": "verifiers", "file": str(TASKSET), "python": find_python()}


def test_a_taskset_of_a_dozen_lines_asks_and_scores(played, env):
    task = Task("t", (Message("user", "Answer."),), columns={"index": 1})
    right, wrong = played(env, [f"Rome{STOP}"], [f"Paris, or so they say in books{STOP}"], task=task)[0]
    assert right.error is None, right.error
    assert right.world.observation == "The capital of Italy?" and right.stop is StopReason.ENV_DONE
    assert right.world.scores == {"exact": 1.0, "short": 1.0, "reward": 1.5}
    assert wrong.world.scores == {"exact": 0.0, "short": 0.0, "reward": 0.0}


def test_a_toolset_shares_the_state_of_its_trajectory_between_setup_and_finalize(played, env):
    task = Task("t", (Message("user", "Sell."),), columns={"index": 1})
    rings = [[1, 2], [0, 5], [20]]
    scripts = [[*(call("till_ring", count=count) + STOP for count in counts), f"Sold.{STOP}"] for counts in rings]
    sold, refused, full = played(env | {"file": str(SALES)}, *scripts, task=task)[0]
    assert [one.error for one in (sold, refused, full)] == [None] * 3
    assert [one.world.scores for one in (sold, refused, full)] == [
        {"drawer": 22.0, "calls": 2.0, "reward": 22.0},
        {"drawer": 30.0, "calls": 2.0, "reward": 30.0},
        {"drawer": 90.0, "calls": 1.0, "reward": 90.0},
    ]
    texts = [one.result.text for turn in sold.turns for one in turn.calls]
    assert texts == ["The total is 4.", "The total is 12."]
    assert "count is at least 1" in refused.turns[0].calls[0].result.text
    assert sold.stop is full.stop is StopReason.ENV_DONE and len(full.turns) == 1, "`is_full` ends the task"


def test_what_only_verifiers_can_run_is_refused_by_name(env):
    (complaint,) = EnvSpec.model_validate(env | {"file": str(SALES), "args": {"guarded": True}}).complaints()
    for name in ("toolset Till is a server at a `url`", "NEEDS_CONTAINER", "Guarded.censor is a `@vf.intercept`"):
        assert name in complaint


@pytest.mark.parametrize(("name", "why"), [("Haggle", "exports Haggle, an Env of its own"), ("Clerk", "a Harness of")])
def test_a_package_that_is_played_by_more_than_its_taskset_is_refused(env, tmp_path, name, why):
    file = tmp_path / f"with_{name.lower()}.py"
    file.write_text(SALES.read_text().replace('__all__ = ["Sales"]', f'__all__ = ["Sales", "{name}"]'))
    (complaint,) = EnvSpec.model_validate(env | {"file": str(file)}).complaints()
    assert why in complaint


def test_a_taskset_that_cannot_be_loaded_is_a_fault_before_the_run(env):
    (complaint,) = EnvSpec.model_validate(env | {"args": {"no_such_field": 1}}).complaints()
    assert "the taskset cannot be loaded" in complaint


def test_a_python_without_verifiers_is_named():
    spec = EnvSpec.model_validate({"kind": "verifiers", "file": str(TASKSET)})
    assert "No module named 'verifiers'" in spec.complaints()[0]
