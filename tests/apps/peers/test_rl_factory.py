"""`Env` classes by RL-Factory's interface, as they are."""

from pathlib import Path

import pytest

from rlf.environments import EnvSpec
from rlf.types import Message, StopReason, Task

from ...environments.conftest import STOP, call

FILE = Path(__file__).with_name("factory_like.py")
ROW = {
    "reward_model": {"ground_truth": {"target": ["Paris"]}},
    "data_source": "nq",
    "extra_info": {"index": 3},
}
TASK = Task("t", (Message("user", "Go."),), columns=ROW)


def env(name="Capitals", **config):
    return {"kind": "rl_factory", "callable": f"{FILE}:{name}", "config": config}


def test_a_turn_is_a_step_and_the_whole_response_is_scored(played):
    asked = [call("local-capital", country="France") + STOP, f"<answer>Paris</answer>{STOP}"]
    (searched, guessed, wrong), _ = played(
        env(use_process_reward=True), asked, [f"<answer>Paris</answer>{STOP}"], [f"Rome{STOP}"], task=TASK
    )
    assert searched.turns[0].calls[0].result.text == "Paris" and searched.stop is StopReason.ENV_DONE
    assert [one.world.scores for one in (searched, guessed, wrong)] == [{"score": 1.5}, {"score": 1.0}, {"score": 0.0}]
    assert [turn.world.reward for turn in searched.turns] == [0.1, None]


def test_steps_have_rewards_where_the_config_says_so_alone(played):
    (trajectory,), _ = played(env(), [call("local-capital", country="X") + STOP, f"Rome{STOP}"], task=TASK)
    assert trajectory.turns[0].calls[0].result.text == "unknown"
    assert [turn.world.reward for turn in trajectory.turns] == [None, None]


def test_what_verifies_an_answer_is_called_with_it_and_the_last_number_counts(played):
    (trajectory,), _ = played(env("Verified"), [f"Rome!{STOP}"], task=TASK)
    assert trajectory.world.scores == {"score": 5.0}, trajectory.error


def test_the_tools_are_those_of_the_manager():
    (tool,) = EnvSpec.model_validate(env()).tools
    assert (tool.name, tool.description) == ("local-capital", "The capital of a country.")
    assert list(tool.input_schema["properties"]) == ["country"]


@pytest.mark.parametrize(
    ("name", "words"), [("Judged", "scored by a judge model"), ("Seeing", "takes `image_data`"), ("Capitals", "")]
)
def test_what_cannot_be_played_is_refused_by_name(name, words):
    complaints = EnvSpec.model_validate(env(name)).complaints()
    assert (words in complaints[0]) if words else complaints == []
