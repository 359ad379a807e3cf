"""Several worlds in one spec: each row has its own, by name, with its tools, its scale and its figures."""

from __future__ import annotations

import json

import pytest
import torch
from pydantic import ValidationError

import rlf
from rlf.algo.advantages.reinforce import Reinforce
from rlf.algo.estimator import AdvantageInput, advantages_by_world
from rlf.core import SpecError
from rlf.environments import EnvSpec
from rlf.plan.compiler import compile as compile_plan
from rlf.plan.warnings import Subject, find_warnings
from rlf.spec import load_spec
from rlf.spec.inputs import check_inputs, look
from rlf.types import Message, Outcome, Task

from .conftest import STOP, WORLDS, call

COUNTER = {"kind": "python", "callable": f"{WORLDS}:Counter"}
TRL = {"kind": "python", "callable": f"{WORLDS}:IncrementEnv"}
ENV = {"kind": "several", "worlds": {"count": COUNTER, "trl": TRL}}
CODE = """
class Library:
    def reset(self, task, seed):
        self.queries = []

    def search(self, query: str):
        \"\"\"Find passages about a person, a town, a river or a company.\"\"\"
        self.queries.append(query)
        return "Nothing."

    def score(self):
        return {"looked": 10.0 * bool(self.queries)}


class Quiet:
    def reset(self, silence, seed):
        self.num_calls = 0
        return "Do not look."

    def ask(self, name: str):
        \"\"\"Ask somebody.

        Args:
            name: whom.
        \"\"\"
        self.num_calls += 1

    def score(self):
        return float(self.num_calls == 0)


class Loud(Quiet):
    def ask(self, name: int):
        \"\"\"Ask a number.

        Args:
            name: which.
        \"\"\"
"""
SPEC = """
name: mixed
model: {path: "builtin:tiny"}
data: {train: {path: rows.jsonl, answer: null}, eval: {path: rows.jsonl, answer: null}}
env:
  kind: several
  worlds:
    library: {kind: python, callable: "code.py:Library"}
    quiet: {kind: python, callable: "code.py:Quiet"}
  scores: {library: {score: looked, range: [0, 10]}}
rewards: [{kind: env, name: solved, score: score}]
train: {algorithm: reinforce, steps: 2, prompts_per_step: 4}
rollout: {num_generations: 2, max_total_tokens: 200, max_turns: 2, schedule: logical}
eval: {limit: 4, greedy: false}
checkpoint: {every: 1}
"""


def task(env, **columns):
    return Task("t", (Message("user", "Go."),), columns={"answer": 3, "env": env, **columns})


def test_a_row_has_its_own_world_and_sees_and_calls_no_tool_of_another(played):
    other = [call("increment", step=3) + STOP, f"Done.{STOP}"]
    ((counted, strayed), _) = played(ENV, [call("add", amount=3) + STOP, f"Done.{STOP}"], other, task=task("count"))
    assert counted.world.scores["exact"] == 1.0 and (counted.world.kind, counted.world.name) == ("python", "count")
    assert strayed.calls[0].result.outcome is Outcome.UNKNOWN_TOOL and strayed.scorable
    ((trl,), _) = played(ENV, other, task=task("trl"))
    assert trl.calls[0].result.outcome is Outcome.OK and "reward" in trl.world.scores
    spec = EnvSpec.model_validate(ENV)
    assert set(spec.foreign_tools({"env": "trl"})) == {"add", "double"}
    assert set(spec.foreign_tools({"env": "count"})) == {"increment"}


@pytest.mark.parametrize("name", ["coutn", None, ["count"]])
def test_a_world_that_there_is_not_makes_the_trajectory_unscorable_by_name(played, name):
    ((trajectory,), _) = played(ENV, [f"Done.{STOP}"], task=task(name))
    assert "there is no world" in trajectory.error and not trajectory.scorable


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"worlds": {}}, "at least 1"),
        ({"worlds": {"inner": ENV}}, "not several"),
        ({"worlds": {"a/b": COUNTER}}, "without `/`"),
        ({"worlds": {"a": COUNTER | {"limits": {"max_concurrency": 1}}}}, "all worlds together"),
        ({"scores": {"cuont": {"score": "exact"}}}, "name of a world"),
        ({"scores": {"count": {"score": "exact", "range": [1, 1]}}}, "range that rises"),
    ],
)
def test_worlds_that_cannot_stand_together_are_refused_by_name(keys, words):
    with pytest.raises(ValidationError, match=words):
        EnvSpec.model_validate(ENV | keys)


def test_limits_are_of_each_world_that_has_none_of_its_own_also_from_a_stored_plan():
    own = COUNTER | {"limits": {"step_s": 3}}
    spec = EnvSpec.model_validate(ENV | {"worlds": {"a": COUNTER, "b": own}, "limits": {"step_s": 7, "reset_s": 8}})
    assert [world.limits.step_s for world in spec.worlds.values()] == [7, 3]
    stored = spec.model_dump(mode="json")
    assert EnvSpec.model_validate(stored).model_dump(mode="json") == stored


@pytest.fixture
def project(tmp_path, monkeypatch):
    rows = [
        {"prompt": f"Where is town {n}?", "env": ["library", "quiet"][n % 2], **({"silence": n} if n % 2 else {})}
        for n in range(8)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "spec.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def faults(project, *changes, rows=None):
    """What `rlf check` finds."""
    if rows is not None:
        (project / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        loaded = load_spec([project / "spec.yaml"], changes)
        compile_plan(loaded)
        return [str(fault) for fault in check_inputs(loaded)]
    except SpecError as error:
        return [str(fault) for fault in error.faults]


def test_a_row_that_names_no_world_is_a_fault_of_check_with_its_number(project):
    assert faults(project) == []
    rows = [{"prompt": "A?", "env": "library"}, {"prompt": "B?", "env": "libary"}, {"prompt": "C?", "env": None}]
    found = faults(project, rows=rows)
    assert len(found) == 2, found  # of data.train and of data.eval
    assert "row 2" in found[0] and "1 more rows" in found[0] and "there is no world 'libary'" in found[0]
    assert "did you mean 'library'" in found[0]
    assert "there is no world None" in faults(project, rows=[{"prompt": "A?"}])[0]


def test_each_world_needs_its_columns_in_its_own_rows_alone(project):
    rows = [{"prompt": "A?", "env": "library"}, {"prompt": "B?", "env": "quiet"}]
    found = faults(project, rows=rows)
    assert all("world 'quiet': its reset takes 'silence'" in fault for fault in found) and len(found) == 2


def test_tools_of_one_name_that_differ_are_a_fault(project):
    found = faults(project, 'env.worlds.loud={kind: python, callable: "code.py:Loud"}')
    assert any("worlds.loud: its tool 'ask'" in fault and "that of 'quiet'" in fault for fault in found), found


def test_a_world_that_no_row_names_is_a_warning(project):
    loaded = load_spec([project / "spec.yaml"], ['env.worlds.third={kind: python, callable: "code.py:Quiet"}'])
    found = [str(fault) for fault in find_warnings(Subject(loaded, look(loaded).train))]
    assert sum("no row of data.train names this world" in fault for fault in found) == 1, found


def test_a_run_shows_success_reward_and_advantages_by_world_on_one_scale(project):
    run = rlf.run(project / "spec.yaml")
    step = run.steps()[-1].metrics
    assert {
        f"world/{name}/{part}" for name in ("library", "quiet") for part in ("success", "reward/mean")
    } <= step.keys()
    assert step["world/library/trajectories"] + step["world/quiet/trajectories"] == 8
    assert 0 <= step["world/library/reward/mean"] <= 1


def test_openrlhf_refuses_estimators_whose_statistics_would_mix_worlds(project):
    found = faults(project, "engine={kind: openrlhf}", "train.algorithm=reinforce")
    assert any("several worlds" in fault and "Write grpo" in fault for fault in found), found
    assert not any(
        "several worlds" in fault for fault in faults(project, "engine={kind: openrlhf}", "train.algorithm=grpo")
    )


def test_an_estimator_of_the_batch_normalises_within_each_world():
    # Two worlds, rewards 0, 1 and 0, 100: whitened apart, (0 - 1/2) / (1/2) = -1 and 1 in both.
    batch = AdvantageInput(
        rewards_B=torch.tensor([0.0, 0.0, 1.0, 100.0]),
        group_B=torch.arange(4),
        action_mask_BT=torch.ones(4, 1, dtype=torch.bool),
        reward_clip=None,
        world_B=torch.tensor([0, 1, 0, 1]),
    )
    apart = advantages_by_world(Reinforce(), batch).advantages_BT.squeeze(1)
    assert apart.tolist() == pytest.approx([-1, -1, 1, 1], abs=1e-3)
    mixed = Reinforce().advantages(batch).advantages_BT.squeeze(1)
    assert mixed[2] < 0  # the other world's scale decides about it
