"""Whole runs in worlds, on the local engine: what is trained on, recorded, and refused before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlf
from rlf.plan.compiler import canonical
from rlf.spec import load_spec
from rlf.types import StopReason

ROOT = Path(__file__).parents[2]
SPEC = f"""extends: {ROOT / "specs" / "search_no_tool.yaml"}
name: visited
tools: []
env: {{kind: python, callable: "library.py:Library", keep_state: true}}
rewards: [{{kind: env, name: looked, score: looked}}, {{kind: env, name: steps, stage: turn, weight: 0.1}}]
data: {{train: {{path: train.jsonl}}, eval: {{path: train.jsonl}}}}
train: {{algorithm: mt_grpo, steps: 2, prompts_per_step: 2}}
rollout: {{num_generations: 2, max_total_tokens: 320, schedule: logical}}
eval: {{limit: 2, greedy: false}}
checkpoint: {{every: 1}}
"""
WORLD = """
from rlf.environments import Step


class Library:
    def reset(self, task, seed):
        self.queries, self.seed = [], seed

    def search(self, query: str):
        \"\"\"Find passages about a person, a town, a river or a company.\"\"\"
        self.queries.append(query)
        return Step(f"No passage {len(self.queries)}: {query}", reward=1.0)

    def score(self):
        return {"looked": float(bool(self.queries))}

    def state(self):
        return {"queries": self.queries}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A spec in a folder of its own."""
    rows = [{"question": f"Where is town {n}?", "answer": f"Here {n}", "kind": "one"} for n in range(8)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "library.py").write_text(WORLD)
    (tmp_path / "spec.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_in_a_world_is_trained_on_its_scores_and_recorded_with_them(project):
    run = rlf.run(project / "spec.yaml")
    scored = run.scored(step=1)
    worlds = [each.trajectory.world for each in scored]
    assert all(
        world.scores["looked"] == float(bool(each.trajectory.calls)) for world, each in zip(worlds, scored, strict=True)
    )
    asked = [each for each in scored if each.trajectory.calls]
    assert asked and all(each.trajectory.world.final_state["queries"] for each in asked)
    turn = asked[0].trajectory.turns[0]
    assert turn.world.reward == 1.0 and turn.world.changes[0].difference.startswith("queries[0]: nothing ->")
    assert {score.term: score.turn_values for score in asked[0].scores}["steps"][0] == 1.0
    assert {each.trajectory.stop for each in scored} <= {*StopReason}


def test_an_evaluation_of_as_many_as_there_may_be_worlds_does_not_wait_for_those_of_the_next_step(project):
    at_once = ["eval.every=1", "eval.limit=4", "+env.limits.max_concurrency=4"]
    run = rlf.run(project / "spec.yaml", at_once)
    assert run.status == "finished"
    assert rlf.evaluate(run, limit=8, greedy=True).rows[0].num_questions == 8, "with four worlds"


def test_a_run_on_rows_that_bring_their_own_tools_is_scored_by_what_their_source_finds(project):
    description, text = "Find passages about a person, a town, a river or a company.", {"type": "string"}
    parameters = {"type": "object", "properties": {"query": text}, "required": ["query"]}
    document = {
        "type": "function",
        "function": {"name": "search", "description": description, "parameters": parameters},
    }
    rows = [
        {
            "question": f"Where is town {number}?",
            "answer": f"Orla {number}",
            "kind": "one",
            "tools": json.dumps([document]),
            "codes": json.dumps({"search": f"def search(query):\n    return ['Orla {number}']"}),
            "unsolved_set": json.dumps({"search": [f"Orla {number}"]}),
        }
        for number in range(4)
    ]
    (project / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = "data: {train: {path: train.jsonl, tools: tools}, eval: {path: train.jsonl, tools: tools}}"
    keys = {"env:": "env: {kind: ftrl, rows: [train.jsonl]}", "data:": data}
    keys |= {"rewards:": "rewards: [{kind: env, name: solved, score: solved}]"}
    keys |= {"train:": "train: {algorithm: grpo, steps: 1, prompts_per_step: 4}"}
    lines = [next((new for key, new in keys.items() if line.startswith(key)), line) for line in SPEC.splitlines()]
    (project / "spec.yaml").write_text("\n".join(lines))
    scored = rlf.run(project / "spec.yaml").scored(step=1)
    assert len(scored) == 8 and all(each.trajectory.scorable for each in scored)
    solved = [each.trajectory.world.scores["solved"] for each in scored]
    assert solved == [float(any(c.result.outcome == "ok" for c in each.trajectory.calls)) for each in scored]
    assert set(solved) == {0.0, 1.0}


def faults_of(project, changed):
    (project / "spec.yaml").write_text(changed)
    return "\n".join(map(str, rlf.check(project / "spec.yaml").faults))


def test_a_score_without_a_world_is_a_fault(project):
    text = faults_of(project, "\n".join(line for line in SPEC.splitlines() if not line.startswith("env:")))
    assert "rewards[0].kind: there is no world that scores. Declare one" in text


def test_a_class_that_is_no_world_is_a_fault_with_every_reason(project):
    (project / "library.py").write_text("class Library:\n    def __init__(self, size): ...\n")
    text = faults_of(project, SPEC)
    assert "cannot be made with the args none: missing a required argument: 'size'" in text
    assert "has neither public methods, which are its tools, nor `reply`" in text
    assert "has neither `score` or `get_reward` nor an attribute `reward`" in text


def test_a_tool_without_a_docstring_is_one_fault(project):
    (project / "library.py").write_text(WORLD.replace('"""Find passages', '# """Find passages'))
    assert faults_of(project, SPEC).count("search has no docstring, which the model reads") == 1


def test_a_column_that_the_reset_needs_and_rows_lack_is_a_fault(project):
    (project / "library.py").write_text(WORLD.replace("task, seed", "questions, seed"))
    text = faults_of(project, SPEC)
    assert "the world's reset takes 'questions', and data.train has no such column; did you mean 'question'?" in text


def test_a_tool_of_the_worlds_name_is_a_fault(project):
    changed = SPEC.replace("tools: []", f"tools: [{ROOT / 'tool_specs' / 'search.yaml'}]")
    assert "got 'search', a tool of the world has this name" in faults_of(project, changed)


def test_plans_without_a_world_keep_their_hash():
    loaded = load_spec([ROOT / "specs" / "search.yaml"])
    assert "env" not in canonical(loaded.spec, (), (), ROOT)
