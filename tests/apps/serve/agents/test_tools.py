"""An agent reaches the world and the tools of the spec over MCP, and what they come to is as in rlf's own loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from rlf.apps.serve.agents import AgentServer
from rlf.apps.serve.agents.programs import AgentSession, AgentTask
from rlf.apps.serve.agents.tools import as_spoken
from rlf.environments import Step
from rlf.environments.kinds.python import PythonEnv
from rlf.environments.pool import WorldPool
from rlf.rollout.loop import Setting, play
from rlf.rollout.rollout import NOT_RUN, Rollout, RolloutLimits
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.agent import AgentSpec
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.tools.execution.tape import ReplayMiss, Tape
from rlf.types import CallRecord, StopReason, ToolCall, Trajectory, Turn
from rlf.types.policy import Sampling

from . import adversaries
from .test_sessions import ANSWER, CHAT, TASK, TOKENIZER

Json = dict[str, Any]


class Till:
    """A till that is filled coin by coin, and full with ten."""

    def reset(self, seed: int) -> str:
        self.held = 0
        return "The till is empty."

    def put(self, coin: int) -> Step:
        """Put a coin into the till."""
        if coin == 13:
            raise SystemExit("the till is broken")
        if coin < 1:
            raise ValueError(f"there is no coin of {coin}")
        self.held += coin
        return Step(f"The till holds {self.held}.", done=self.held >= 10)

    def score(self) -> dict[str, float]:
        return {"held": float(self.held)}

    def state(self) -> Json:
        return {"held": self.held}


class Asking(Till):
    """A till whose owner asks for more until it holds five, and then leaves."""

    def reply(self, text: str) -> str | None:
        if text == "break":
            raise SystemExit("nobody is there")
        self.heard = [*getattr(self, "heard", []), text]
        return "More, please." if self.held < 5 else None

    def score(self) -> dict[str, float]:
        return {"held": float(self.held), "heard": float(len(getattr(self, "heard", [])))}


def double(number: int) -> str:
    """What the spec's own tool says."""
    return str(2 * number)


DOUBLE = ToolDeclaration.model_validate(
    {
        "name": "double",
        "description": "Doubles.",
        "inputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
        "target": {"kind": "python", "callable": f"{__name__}:double", "isolation": "inline"},
    }
)
seen: list[Json] = []
"""What MCP answered."""
sessions: list[AgentSession] = []


def called(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"


async def rpc(session: AgentSession, method: str, params: Json | None = None, *, key: str | None = None) -> Json:
    headers = {"Authorization": f"Bearer {key or session.key}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with aiohttp.ClientSession(headers=headers) as client, client.post(session.mcp_url, json=body) as response:
        found: Json = await response.json()
        seen.append(found)
        return found


async def use(session: AgentSession, name: str, **arguments: Any) -> str:
    found = await rpc(session, "tools/call", {"name": name, "arguments": arguments})
    return str(found["result"]["content"][0]["text"])


async def follows(task: AgentTask, session: AgentSession) -> str:
    """Makes the calls that the model asks for."""
    sessions.append(session)
    listed = (await rpc(session, "tools/list"))["result"]["tools"]
    tools = [
        {
            "type": "function",
            "function": {"name": t["name"], "description": t["description"], "parameters": t["inputSchema"]},
        }
        for t in listed
    ]
    messages: list[Any] = [*task.messages]
    while True:
        message = adversaries.message_of(await adversaries.ask(session, messages, tools=tools))
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        for call in message["tool_calls"]:
            said = await use(session, call["function"]["name"], **json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})


async def acts_alone(task: AgentTask, session: AgentSession) -> str:
    """Calls what no model asked for, and what is not there."""
    await use(session, "put", coin=3)
    await use(session, "put", coin=-1)
    await use(session, "nothing")
    for method, params in (("prompts/list", None), ("tools/call", {"name": 3}), ("ping", None)):
        await rpc(session, method, params)
    await rpc(session, "ping", key="guess")
    return await adversaries.plain(task, session)


async def goes_on_after(task: AgentTask, session: AgentSession) -> str:
    """Leaves a call behind that comes when the trajectory is over."""

    async def later() -> None:
        await asyncio.sleep(0.3)
        await rpc(session, "tools/call", {"name": "put", "arguments": {"coin": 5}})

    adversaries.late.append(asyncio.ensure_future(later()))
    return await adversaries.plain(task, session)


async def breaks(task: AgentTask, session: AgentSession) -> str:
    await adversaries.ask(session, [*task.messages])
    await use(session, "put", coin=13)
    return await adversaries.plain(task, session)


async def speaks_by_the_sdk(task: AgentTask, session: AgentSession) -> str:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    client = create_mcp_http_client(headers={"Authorization": f"Bearer {session.key}"})
    async with (
        client,
        streamable_http_client(session.mcp_url, http_client=client) as (reader, writer),
        ClientSession(reader, writer) as server,
    ):
        await server.initialize()
        names = [tool.name for tool in (await server.list_tools()).tools]
        found = await server.call_tool("put", {"coin": 4})
    seen.append({"names": names, "text": found.content[0].text, "is_error": found.is_error})
    return await adversaries.plain(task, session)


@asynccontextmanager
async def opened(
    script: Sequence[str], tools: Sequence[str], world: str = "Till", **limits: Any
) -> AsyncIterator[tuple[Setting, Any]]:
    env = PythonEnv.model_validate({"kind": "python", "callable": f"{__name__}:{world}", "keep_state": True})
    async with WorldPool(env, seed=0) as worlds, Executor((DOUBLE, *worlds.declarations)) as executor:
        policy = ScriptedPolicy(TOKENIZER, [*script], logprob=-0.5)
        bounds = RolloutLimits(max_turns=4, max_total_tokens=900, **limits)
        from rlf.chat.format import open_format

        shown = [tool for tool in executor.descriptions if tool.name in tools]
        chat = open_format("auto", TOKENIZER, shown) if tools else CHAT
        sampling = Sampling(stop_token_ids=CHAT.stop_token_ids)
        yield Setting(policy, chat, executor, bounds, sampling, worlds=worlds), worlds


def play_agent(name: str, script: Sequence[str], **limits: Any) -> Trajectory:
    seen.clear()
    sessions.clear()

    async def main() -> Trajectory:
        agent = AgentSpec(callable=f"{__name__}:{name}", timeout_s=60.0)
        async with opened(script, (), **limits) as (setting, worlds), AgentServer(agent, TOKENIZER) as server:
            player = server.player(setting, overrides=True)
            found = await player.play(Rollout("r", TASK, 0, seed=3))
            await asyncio.gather(*adversaries.late, return_exceptions=True)
            adversaries.late.clear()
            assert not worlds._episodes, "the world is closed"
            return found

    return asyncio.run(main())


def play_loop(script: Sequence[str]) -> Trajectory:
    async def main() -> Trajectory:
        async with opened(script, ("double", "put")) as (setting, _):
            return await play(Rollout("r", TASK, 0, seed=3), setting)

    return asyncio.run(main())


@pytest.mark.parametrize(
    "script",
    [
        [called("put", coin=2), called("put", coin=3), ANSWER],
        [
            called("put", coin=2)[: -len("<|im_end|>")] + "\n" + called("put", coin=4),
            called("double", number=4),
            ANSWER,
        ],
        [called("put", coin=-1), called("put", coin=12), ANSWER],
    ],
    ids=["two_turns", "two_calls_in_a_turn", "a_refused_call_and_the_end_of_the_world"],
)
def test_an_agents_world_is_stepped_recorded_and_scored_as_in_the_loop(script: list[str]) -> None:
    ours, theirs = play_loop(script), play_agent("follows", script)
    assert (theirs.stop, theirs.error, theirs.answer) == (ours.stop, None, ours.answer)
    assert theirs.tokens == ours.tokens
    assert theirs.action_mask == ours.action_mask
    assert [turn.world for turn in theirs.turns] == [turn.world for turn in ours.turns]
    results = [[(r.call.name, r.result.outcome, r.result.text) for r in each.calls] for each in (ours, theirs)]
    assert results[0] == results[1]
    assert ours.world is not None and theirs.world is not None
    agents = theirs.world.final_state
    assert replace(theirs.world, final_state=agents["world"], world_s=0.0) == replace(ours.world, world_s=0.0)
    assert "The till is empty." in CHAT.decode(theirs.tokens)


def test_what_an_agent_does_by_itself_is_the_worlds_and_counted() -> None:
    trajectory = play_agent("acts_alone", [ANSWER])
    assert trajectory.stop is StopReason.ANSWERED
    assert trajectory.world is not None
    assert trajectory.world.scores == {"held": 3.0}
    assert trajectory.world.final_state["tool calls of its own"] == 3
    assert [len(turn.world.changes) for turn in trajectory.turns if turn.world] == [1]
    texts = [each["result"]["content"][0]["text"] for each in seen[:3]]
    assert texts[0] == "The till holds 3." and "no coin" in texts[1] and "known: double, put" in texts[2]
    assert [each["error"]["code"] for each in seen[3:5]] == [-32601, -32602]
    assert seen[5]["result"] == {}
    assert seen[6]["error"]["code"] == "invalid_api_key"


def test_a_call_after_the_end_does_not_reach_the_world() -> None:
    trajectory = play_agent("goes_on_after", [ANSWER])
    assert trajectory.world is not None and trajectory.world.scores == {"held": 0.0}
    assert seen[-1]["error"]["code"] == "over"


def test_a_world_that_breaks_makes_the_trajectory_unscorable() -> None:
    trajectory = play_agent("breaks", [ANSWER, ANSWER])
    assert trajectory.stop is StopReason.INFRA_FAILURE
    assert (trajectory.error or "").startswith("tool 'put': infra")


def test_calls_over_the_limit_are_answered_so() -> None:
    play_agent("follows", [called("double", number=1), called("double", number=2), ANSWER], max_tool_calls=1)
    assert "No tool calls are left" in seen[-1]["result"]["content"][0]["text"]


def test_what_a_recording_lacks_ends_the_run_and_is_no_failure_of_the_agent() -> None:
    async def main() -> None:
        agent = AgentSpec(callable=f"{__name__}:follows", timeout_s=60.0)
        async with Executor((DOUBLE,), replay=Tape(())) as executor, AgentServer(agent, TOKENIZER) as server:
            policy = ScriptedPolicy(TOKENIZER, [called("double", number=1), ANSWER])
            limits = RolloutLimits(max_turns=4, max_total_tokens=900)
            setting = Setting(policy, CHAT, executor, limits, Sampling(stop_token_ids=CHAT.stop_token_ids))
            await server.player(setting, overrides=True).play(Rollout("r", TASK, 0, seed=3))

    with pytest.raises(ReplayMiss):
        asyncio.run(main())


def test_the_client_of_mcps_sdk_is_understood() -> None:
    trajectory = play_agent("speaks_by_the_sdk", [ANSWER])
    assert trajectory.error is None
    assert seen[0] == {"names": ["double", "put"], "text": "The till holds 4.", "is_error": False}


def test_an_agent_speaks_with_a_world_that_answers_by_a_tool_and_its_answer_is_the_last_word() -> None:
    script = [called("say_to_user", text="Hi"), called("put", coin=6), "Goodbye.<|im_end|>"]
    found = play_agent("follows", script, world="Asking")
    assert found.world is not None and found.world.scores == {"held": 6.0, "heard": 2.0}
    assert (found.stop, found.answer) == (StopReason.ANSWERED, "Goodbye.")
    assert [turn.world.reply for turn in found.turns if turn.world] == ["More, please.", None, None]
    assert found.turns[0].calls[0].result.text == "More, please."


def test_a_conversation_that_the_world_ends_ends_the_trajectory_and_is_heard_no_more() -> None:
    script = [called("put", coin=6), called("say_to_user", text="Done"), ANSWER]
    found = play_agent("follows", script, world="Asking")
    assert found.world is not None and found.world.scores == {"held": 6.0, "heard": 1.0}
    assert found.stop is StopReason.ENV_DONE and len(found.turns) == 2


def test_a_world_that_fails_to_answer_leaves_the_trajectory_unscored() -> None:
    for last in (called("say_to_user", text="break"), "break<|im_end|>"):
        found = play_agent("follows", [last, ANSWER], world="Asking")
        assert found.stop is StopReason.INFRA_FAILURE and "nobody is there" in (found.error or "")


def test_what_is_no_text_is_not_said_and_words_by_the_tool_are_turns_of_words_to_the_world() -> None:
    script = [called("say_to_user", number=1), ANSWER]
    found = play_agent("follows", script, world="Asking")
    assert "expected text" in found.turns[0].calls[0].result.text
    call, words = ToolCall("put", {"coin": 1}), ToolCall("rlf_say_to_user", {"text": "Hi"})
    records = tuple(CallRecord(one, NOT_RUN) for one in (call, words))
    turns = [Turn(0, 1, 1, "raw", calls=records), Turn(1, 2, 2, "Bye")]
    seen_turns = [(turn.text, [one.call.name for one in turn.calls]) for turn in as_spoken(turns)]
    assert seen_turns == [("raw", ["put"]), ("Hi", []), ("Bye", [])]
