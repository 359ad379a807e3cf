"""Worlds in OpenRLHF's actor: calls change a world, its scores are the reward, and what breaks it ends no job."""

from __future__ import annotations

import pytest

from rlf.types import Phase, StopReason

from .agents import CALL, RIGHT, new_job, play, records

WORLD = """
class Library:
    def __init__(self, fails=False):
        self.fails = fails

    def reset(self, task, seed):
        if self.fails:
            raise RuntimeError("no library today")
        self.queries = []

    def search(self, query: str):
        \"\"\"Find passages.\"\"\"
        self.queries.append(query)
        return f"Rinten was born in Fentes. ({len(self.queries)})"

    def score(self):
        return {"looked": len(self.queries) / 2}

    def state(self):
        return self.queries
"""


@pytest.fixture
def job(load, tmp_path):
    def make(**args):
        (tmp_path / "library.py").write_text(WORLD)
        given = ", ".join(f"{key}: {value}" for key, value in args.items())
        env = f"+env={{kind: python, callable: '{tmp_path / 'library.py'}:Library', args: {{{given}}}}}"
        rewards = "rewards=[{kind: env, name: looked, score: looked}]"
        return new_job(load, tmp_path, "tools=[]", rewards, env, "engine.outage_s=0")

    return make


def test_calls_change_the_world_and_its_score_is_the_reward(job):
    made = job()
    responses, _ = play(made, [CALL, CALL, RIGHT], samples=1)
    assert [response["reward"] for response in responses] == [1.0]
    worlds = [record.scored.trajectory.world for record in records(made)]
    assert [world.scores for world in worlds] == [{"looked": 1.0}]
    turn = records(made)[0].scored.trajectory.turns[1]
    assert turn.world.changes[0].difference.startswith("[1]: nothing -> ")


def test_a_world_that_cannot_be_reset_leaves_the_trajectory_out(job):
    made = job(fails="true")
    responses, _ = play(made, [RIGHT])
    last = records(made)[-1].scored
    assert (last.trajectory.stop, last.trajectory.world.failed, last.reward) == (
        StopReason.INFRA_FAILURE,
        Phase.RESET,
        None,
    )
    assert "no library today" in last.trajectory.error
    assert len(responses) == 4
