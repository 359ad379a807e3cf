"""A user that a model plays: what it is asked, what it costs, how it ends a conversation."""

import asyncio

from rlf.core.meter import Meter
from rlf.environments import EnvSpec, WorldPool
from rlf.types import Message, StopReason, Task

from .conformance.model import COUNTER, Scripted, scripted
from .conftest import STOP, call

TASK = Task("t", (Message("user", "Apples, please."),), 3, columns={"answer": 3})


def user(endpoints, **keys):
    return {"kind": "model", "endpoints": endpoints, "system": "{{ answer }} apples", **keys}


def test_the_user_hears_the_policy_and_ends_the_conversation(played):
    with scripted() as (endpoints, asked):
        (trajectory,), _ = played(user(endpoints), [f"How many?{STOP}", f"Here are 3.{STOP}"], task=TASK)
    assert trajectory.stop is StopReason.ENV_DONE
    assert [turn.world.reply for turn in trajectory.turns] == ["I asked for 3 apples.", "Thanks, bye."]
    assert trajectory.world.scores == {"turns": 2.0, "ended": 1.0}
    assert [(one["role"], one["content"]) for one in asked[1]["messages"]] == [
        ("system", "3 apples"),
        ("assistant", "Apples, please."),
        ("user", "How many?"),
        ("assistant", "I asked for 3 apples."),
        ("user", "Here are 3."),
    ]


def test_the_worlds_tools_and_scores_are_there_beside_the_user(played):
    with scripted() as (endpoints, asked):
        env = user(endpoints, world=COUNTER, greeting="Hello.")
        script = [call("add", amount=3) + STOP, f"Here are 3.{STOP}"]
        (trajectory,), _ = played(env, script, task=TASK)
    assert trajectory.world.observation == "Count to 3.\n\nI asked for 3 apples."
    assert trajectory.world.scores == {"exact": 1.0, "near": 1.0, "turns": 1.0, "ended": 1.0}
    assert trajectory.turns[0].world.changes[0].difference == "number: 0 -> 3" and len(asked) == 2


def test_a_conversation_that_never_ends_is_ended(played):
    with scripted() as (endpoints, _):
        (trajectory,), _ = played(user(endpoints, max_replies=2), [f"What?{STOP}"] * 4, task=TASK)
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.ENV_DONE, 2)
    assert trajectory.world.scores == {"turns": 2.0, "ended": 0.0}


class Caller(Scripted):
    """Plays a user that calls a tool that nobody gave it."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        self.answer(200, {"choices": [{"message": message, "finish_reason": "tool_calls"}]})


def test_a_user_without_words_has_failed_and_did_not_end_the_conversation(played):
    with scripted(Caller) as (endpoints, _):
        (trajectory,), _ = played(user(endpoints), [f"How many?{STOP}"], task=TASK)
    assert trajectory.stop is StopReason.INFRA_FAILURE and not trajectory.scorable
    assert trajectory.error == "world model: reply: the model that plays the user wrote no words"


def test_what_the_user_costs_is_counted(played):
    meter = Meter()

    async def go(endpoints):
        async with WorldPool(EnvSpec.model_validate(user(endpoints)), seed=0, meter=meter) as worlds:
            episode = worlds.open("t", TASK)
            await episode.reset()
            await episode.reply("How many?")
            await episode.close()

    with scripted() as (endpoints, _):
        asyncio.run(go(endpoints))
    assert meter.usage["prompt_tokens"] == 7 and meter.usage["completion_tokens"] == 3


def test_two_that_speak_and_columns_that_are_missing_are_faults_before_the_run():
    endpoints = [{"url": "http://127.0.0.1:9/v1", "model": "user"}]
    speaking = {"kind": "python", "callable": COUNTER["callable"].replace("Counter", "Guess")}
    (complaint,) = EnvSpec.model_validate(user(endpoints, world=speaking)).complaints()
    assert "both the world and the user would answer turns without calls" in complaint
    assert EnvSpec.model_validate(user(endpoints, world=COUNTER)).missing_columns(["question"]) == ["answer"]
