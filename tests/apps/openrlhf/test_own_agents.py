"""An agent of the user's own plays the samples of a job, and OpenRLHF gets the tokens that the sampler gave."""

from __future__ import annotations

import json

import pytest

from rlf.apps.openrlhf.spool_pool import Record
from rlf.core import RunError, SpecError
from rlf.plan import compile as compile_plan
from tests.apps.serve.agents import adversaries

from .agents import CALL, RIGHT, new_job, play, records

AGENT = (
    *("tools=[]", "rollout.schedule=clock", "rollout.agent.on_break=fail", "rollout.agent.timeout_s=60"),
    "rollout.agent.callable=tests.apps.serve.agents.adversaries:{}",
)


def of(name: str) -> list[str]:
    return [override.format(name) for override in AGENT]


@pytest.mark.parametrize("ask", [adversaries.ask, adversaries.ask_without_http])
def test_the_samples_of_an_agent_are_the_jobs_sequences(ask, load, tmp_path, monkeypatch):
    monkeypatch.setattr(adversaries, "ask", ask)
    job = new_job(load, tmp_path, *of("plain"))
    (response,), _ = play(job, [CALL, RIGHT], samples=1)
    (scored,) = [line.scored for line in records(job) if isinstance(line, Record)]
    assert (scored.reward, len(scored.trajectory.turns)) == (1.0, 2)
    assert scored.trajectory.tokens == response["observation_tokens"]
    assert [call.result.text for call in scored.trajectory.calls] == ["Paris is here."]


def test_a_prompt_that_continues_nothing_is_left_out_of_the_step(load, tmp_path):
    job = new_job(load, tmp_path, *of("compacts"))
    play(job, [CALL])
    (record, *_) = [line for line in records(job) if isinstance(line, Record)]
    assert record.scored.reward is None
    assert (record.scored.trajectory.error or "").startswith("agent: break: ")


def test_a_sampler_that_fails_is_no_failure_of_the_agent(load, tmp_path):
    job = new_job(load, tmp_path, *of("plain"))
    with pytest.raises((RunError, RuntimeError), match="the engine is gone"):
        play(job, [RuntimeError("the engine is gone")])


def test_a_job_takes_no_agent_whose_trajectories_may_be_several_sequences(load):
    with pytest.raises(SpecError) as refused:
        compile_plan(load(*of("plain"), "rollout.agent.on_break=sample"))
    assert "OpenRLHF trains one for each sample" in str(refused.value), json.dumps(str(refused.value))
