"""A model behind a server in a world: its calls change the state, the world hears its answers, the state is scored."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.core.meter import Meter
from rlf.endpoints.pool import open_pool
from rlf.endpoints.spec import EndpointSpec, SamplingSpec
from rlf.environments import EnvSpec, WorldPool
from rlf.rollout import Rollout, RolloutLimits
from rlf.rollout.by_text import TextPlayer
from rlf.tools import Executor
from rlf.tools.agent_text import AUTO, TextCalls
from rlf.types import Message, StopReason, Task

from .conformance.model import Scripted, scripted
from .conftest import world

ROOT = Path(__file__).parents[2]


class Agent(Scripted):
    """Plays what the system message says, turn by turn: calls as `name {...}`, or words."""

    def do_POST(self):
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        self.server.asked.append(messages)
        turn = json.loads(messages[0]["content"])[sum(one["role"] == "assistant" for one in messages)]
        message = {"role": "assistant", "content": turn} if isinstance(turn, str) else {"role": "assistant"}
        if not isinstance(turn, str):
            calls = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in turn]
            message["tool_calls"] = [{"id": f"c{n}", "type": "function", "function": c} for n, c in enumerate(calls)]
        usage = {"prompt_tokens": 400 * len(messages)}
        self.answer(200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})


def play(env, script, max_turns=4, max_total_tokens=999):
    """The trajectory of a script, and what the server was asked."""
    task = Task("t", (Message("system", json.dumps(script)), Message("user", "Go.")), 3, columns={"answer": 3})

    async def go(endpoint):
        pool = await open_pool([EndpointSpec.model_validate(endpoint)])
        spec = EnvSpec.model_validate(env)
        async with WorldPool(spec, seed=7) as worlds, Executor(worlds.declarations) as executor:
            limits = RolloutLimits(max_turns=max_turns, max_total_tokens=max_total_tokens)
            texts = TextCalls(AUTO, executor.descriptions)
            room, sampling = asyncio.Semaphore(2), SamplingSpec()
            player = TextPlayer(pool, executor, limits, sampling, 20.0, room, Meter(), texts, {}, worlds=worlds)
            try:
                return await player.play(Rollout("r", task, 0, seed=0))
            finally:
                assert not worlds._episodes
                await pool.close()

    with scripted(Agent) as (endpoints, asked):
        return asyncio.run(go(endpoints[0])), asked


def test_calls_change_the_world_in_their_order_and_its_state_is_scored():
    script = [[["add", {"amount": 1}], ["double", {}], ["add", {"amount": 1}]], "Done."]
    trajectory, asked = play(world("Counter"), script, max_total_tokens=9999)
    assert (trajectory.stop, trajectory.world.scores["exact"]) == (StopReason.ANSWERED, 1.0), trajectory.error
    assert asked[0][1]["content"] == "Go.\n\nCount to 3."
    assert [change.difference for change in trajectory.turns[0].world.changes] == [
        "number: 0 -> 1",
        "number: 1 -> 2",
        "number: 2 -> 3",
    ]


def test_a_world_that_speaks_is_heard_as_the_user():
    trajectory, asked = play(world("Guess"), ["1", "5", "3"], max_total_tokens=9999)
    assert (trajectory.stop, trajectory.world.scores) == (StopReason.ENV_DONE, {"score": 1 / 3})
    assert [one["content"] for one in asked[2] if one["role"] == "user"] == [
        "Go.\n\nGuess my number.",
        "higher",
        "lower",
    ]


def test_the_tokens_of_a_conversation_with_a_world_have_a_bound():
    trajectory, asked = play(world("Guess"), ["1", "5", "4", "3"])
    assert (trajectory.stop, len(asked)) == (StopReason.LENGTH, 2) and trajectory.turns[1].world.reply == "lower"


def test_calls_of_the_last_turn_still_count():
    trajectory, _ = play(world("Counter"), [[["add", {"amount": 3}]]], max_turns=1)
    assert (trajectory.stop, trajectory.world.scores["exact"]) == (StopReason.MAX_TURNS, 1.0)


@pytest.mark.parametrize("phase", ["reset", "step", "reply", "score"])
def test_a_world_that_fails_makes_the_trajectory_unscorable(phase):
    trajectory, _ = play(world("Broken", args={"phase": phase}), [[["act", {}]], "Done."])
    assert trajectory.stop is StopReason.INFRA_FAILURE and not trajectory.scorable
    assert f"{phase} is broken" in trajectory.error


def test_adversaries_of_rewards_name_the_command_that_plays_worlds():
    result = CliRunner().invoke(app, ["rewards", "attack", str(ROOT / "specs" / "shop.yaml")])
    assert result.exit_code == 2 and "rlf env attack" in result.output
