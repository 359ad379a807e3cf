"""An agent before an endpoint: its calls are sent there, and are recorded and linked by their words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rlf.apps.serve.agents import AgentServer, calls
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.core.meter import Meter
from rlf.endpoints.pool import EndpointPool
from rlf.endpoints.spec import EndpointSpec, SamplingSpec
from rlf.rollout.by_text import TextPlayer
from rlf.rollout.rollout import Rollout, RolloutLimits
from rlf.spec.agent import AgentSpec
from rlf.tools.agent_text import AUTO, TextCalls
from rlf.tools.execution.executor import Executor
from rlf.types import Message, StopReason, Task, Trajectory

from . import adversaries

TOKENIZER = load_tokenizer(str(builtin_path("tiny")))
TASK = Task("t", (Message("user", "Which town?"),))
CALL = {"tool_calls": [{"id": "call_0", "function": {"name": "search", "arguments": '{"query":"capital"}'}}]}
ANSWER = {"content": "Paris"}
Turn = dict[str, Any] | int


def play(name: str, script: Sequence[Turn], *, max_total_tokens: int = 600) -> tuple[Trajectory, list[Any], Any]:
    """A trajectory, what its endpoint was sent, and what it counted. A turn that is a number is a status."""
    adversaries.seen.clear()
    asked: list[Any] = []
    usage: dict[str, dict[str, float]] = {}

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        turn = script[min(len(asked), len(script)) - 1]
        if isinstance(turn, int):
            return web.json_response({"error": {"message": "down"}}, status=turn)
        finish = "tool_calls" if "tool_calls" in turn else turn.get("finish", "stop")
        choice = {"message": {"role": "assistant", "content": "", **turn}, "finish_reason": finish}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 30, "completion_tokens": 10}})

    async def main() -> Trajectory:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        declared = AgentSpec(callable=f"{adversaries.__name__}:{name}", timeout_s=60.0)
        async with TestServer(app) as server, Executor(()) as tools, AgentServer(declared, TOKENIZER) as agents:
            pool = EndpointPool([EndpointSpec(url=str(server.make_url("/v1")), model="big", timeout_s=20)])
            limits = RolloutLimits(max_turns=4, max_total_tokens=max_total_tokens)
            room, how = asyncio.Semaphore(4), SamplingSpec(temperature=0.5, max_tokens=64)
            text_calls = TextCalls(AUTO, ())
            asks = TextPlayer(pool, tools, limits, how, 5.0, room, Meter(), text_calls, usage)
            try:
                player = agents.forwarding(asks)
                player.open(["r0"])
                return await player.play(Rollout("r0", TASK, 0, seed=3))
            finally:
                await pool.close()

    return asyncio.run(main()), asked, usage


@pytest.mark.parametrize(
    ("name", "script", "wanted"),
    [
        ("plain", [CALL, CALL, ANSWER], ["first", "", ""]),
        ("serializes_again", [CALL, ANSWER], ["first", ""]),
        ("retries", [CALL, ANSWER], ["first", ""]),
        ("loses_its_stream", [ANSWER], ["first"]),
        ("samples_twice", [CALL, CALL, ANSWER], ["first", calls.SAME_PROMPT, ""]),
        ("samples_four", [CALL, CALL, CALL, CALL, ANSWER], ["first", *[calls.SAME_PROMPT] * 3, ""]),
        ("compacts", [CALL, CALL, ANSWER], ["first", "", calls.SHORTENED]),
        ("edits_history", [CALL, ANSWER], ["first", calls.EDITED]),
        ("has_a_sub_agent", [CALL, ANSWER, ANSWER], ["first", "", calls.OTHER_SYSTEM]),
        ("edits_its_tools", [CALL, ANSWER], ["first", calls.OTHER_TOOLS]),
        ("branches", [CALL, ANSWER, ANSWER], ["first", "", calls.BRANCH]),
        ("speaks_anthropic", [CALL, CALL, ANSWER], ["first", "", ""]),
        ("speaks_responses", [CALL, CALL, ANSWER], ["first", "", ""]),
    ],
)
def test_a_call_is_linked_by_its_words_as_it_is_by_its_tokens(name: str, script: list[Turn], wanted: list[str]) -> None:
    trajectory, asked, usage = play(name, script)
    assert sorted(turn.link for turn in trajectory.turns) == sorted(wanted)
    assert (trajectory.stop, trajectory.answer, trajectory.tokens) == (StopReason.ANSWERED, "Paris", [])
    others = [turn.asked for turn in trajectory.turns if turn.link == calls.OTHER_SYSTEM]
    assert all(other[-1].content == "Summarise: Paris" for other in others)
    assert len(asked) == len(script) and usage["r0"]["prompt_tokens"] == 30 * len(script)
    roots = sum(link not in ("", calls.BRANCH) for link in wanted)
    assert trajectory.world is not None and trajectory.world.final_state is not None
    assert trajectory.world.final_state["contexts"] >= roots


def test_the_agents_settings_hold_and_each_call_has_a_seed_of_its_own() -> None:
    _, asked, _ = play("wants_no_chance", [ANSWER])
    assert asked[0]["temperature"] == 0 and asked[0]["model"] == "big"
    _, asked, _ = play("samples_twice", [CALL, CALL, ANSWER])
    assert [body["temperature"] for body in asked] == [0.5] * 3 and len({body["seed"] for body in asked}) == 3
    assert asked == play("samples_twice", [CALL, CALL, ANSWER])[1]  # and so is the whole request, another time


@pytest.mark.parametrize(
    ("script", "stop", "words"),
    [
        ([CALL, 401], StopReason.INFRA_FAILURE, "the model's server"),
        ([{"content": ""}], StopReason.ANSWERED, None),
        ([{"content": "", "finish": "length"}], StopReason.ANSWERED, None),
    ],
)
def test_an_endpoint_that_fails_is_no_fault_of_the_model_and_an_empty_answer_is(
    script: list[Turn], stop: StopReason, words: str | None
) -> None:
    trajectory, _, _ = play("plain", script)
    assert trajectory.stop is stop and (trajectory.error or "").startswith(words or "")
    if words is None:
        assert trajectory.answer == "" and trajectory.turns[0].failures


def test_a_conversation_that_has_used_up_its_tokens_is_asked_no_more() -> None:
    trajectory, asked, _ = play("plain", [CALL, ANSWER], max_total_tokens=40)
    assert (trajectory.stop, len(asked)) == (StopReason.LENGTH, 1)


Ask = Callable[..., Awaitable[Any]]


def test_what_needs_tokens_is_refused_and_what_the_endpoint_can_do_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    form = {"type": "json_schema", "json_schema": {"name": "town", "schema": {"type": "object"}}}

    async def story(task: Any, session: Any) -> str:
        messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]
        refused = await adversaries.ask(session, messages, logprobs=True)
        assert refused["error"]["param"] == "logprobs"
        choice = {"type": "function", "function": {"name": "search"}}
        answer = await adversaries.ask(
            session, messages, response_format=form, tool_choice=choice, parallel_tool_calls=False, stop=["."]
        )
        assert answer["usage"] == {"prompt_tokens": 30, "completion_tokens": 10, "total_tokens": 40}
        return str(adversaries.message_of(answer)["content"])

    monkeypatch.setattr(adversaries, "plain", story)
    trajectory, (body,), _ = play("plain", [ANSWER])
    assert trajectory.answer == "Paris" and body["messages"][0]["content"][1] == image
    assert body["response_format"] == form and body["tool_choice"]["function"] == {"name": "search"}
    assert (body["parallel_tool_calls"], body["stop"], json.dumps(body["max_tokens"])) == (False, ["."], "64")
