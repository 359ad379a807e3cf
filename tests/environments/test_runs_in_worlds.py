"""Whole runs in worlds, on the local engine: what is trained on, recorded, and refused before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlf
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
