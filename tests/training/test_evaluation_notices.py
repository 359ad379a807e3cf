"""An evaluation reports the trajectories that are no part of its figures."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rlf.rewards import TrajectoryFacts
from rlf.spec.models import EvalSpec
from rlf.training import evaluation
from rlf.types import Notice, Scored

CALL = {"name": "search", "result": "unreachable", "outcome": "unreachable"}


def scored(reward, **facts):
    trajectory = TrajectoryFacts.model_validate({"gold": "x", **facts}).trajectory()
    return Scored(trajectory, scores=(), reward=reward, success=reward)


@pytest.mark.parametrize("num_broken", [0, 2])
def test_an_evaluation_in_which_a_tool_was_down_names_it_and_the_number(monkeypatch, num_broken):
    broken = [scored(None, turns=[{"text": "t", "calls": [CALL]}], stop="infra_failure") for _ in range(num_broken)]

    async def collect(*args, **kwargs):
        return [scored(1.0, answer="x"), *broken]

    monkeypatch.setattr(evaluation, "collect", collect)
    harness = SimpleNamespace(
        evaluation=None,
        greedy=None,
        reward=None,
        setting=lambda *each: None,
        meter=SimpleNamespace(bounded=lambda *each: nullcontext()),
    )
    events = []
    spec = EvalSpec.model_validate({"greedy": False})
    success = asyncio.run(evaluation.evaluate(None, harness, [], spec, seed=0, step=4, emit=events.append))
    notices = [event for event in events if isinstance(event, Notice)]
    assert success == 1.0
    assert len(notices) == bool(num_broken)
    if num_broken:
        assert "evaluation after step 4, sampled: 2 of 3 trajectories have no value" in notices[0].text
        assert "tool 'search' broke 2 of them" in notices[0].text
