"""What is served answers as the same model does in process: by a client's own tool loop, and by the server's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.serving import body_of, play_over_http
from rlf.apps.serve import ServeSettings
from rlf.apps.serve.agent import ServedAgent
from rlf.apps.serve.app import ModelServer, answering
from rlf.apps.serve.requests import ChatRequest
from rlf.apps.serve.serve import _open_agent, used_as_trained
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.core import RlfError
from rlf.core.servers import listening
from rlf.data import load_tasks
from rlf.engines.engine import HostSettings
from rlf.engines.local.restored import load_host
from rlf.rollout.loop import play
from rlf.rollout.rollout import Rollout
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.load import load_spec
from rlf.training.harness import build_harness

from .agents import adversaries
from .served import events_of

CHECKPOINT = builtin_path("tiny")

SPEC = Path(__file__).parents[3] / "specs" / "search.yaml"
NUM = 32


def test_greedy_answers_over_http_are_those_in_process_token_by_token() -> None:
    """`python benchmarks/serving.py equal -n 512` asks all of them."""

    async def main() -> None:
        spec = load_spec([SPEC]).spec
        host, tokenizer = load_host(str(CHECKPOINT), HostSettings(num_slots=NUM))
        harness = build_harness(spec, tokenizer, lambda level, text: None)
        assert spec.data.eval is not None
        tasks = load_tasks(**spec.data.eval.model_dump(), declared=["search", "calculator"])[:NUM]
        tools = [tool.as_openai() for tool in harness.chat.tools]
        async with host, harness.tools:
            setting = harness.setting(host, harness.greedy)
            setting.open([task.id for task in tasks])
            played = await asyncio.gather(*(play(Rollout(task.id, task, 0, 0), setting) for task in tasks))
            assert sum(len(turn.calls) for one in played for turn in one.turns) >= NUM // 4
            with listening("127.0.0.1", 0) as plain, listening("127.0.0.1", 0) as looped:
                settings = ServeSettings(name="builtin:tiny")
                async with (
                    answering(ModelServer(host, tokenizer, settings), plain) as url,
                    answering(ModelServer(host, tokenizer, settings, agent=ServedAgent(harness)), looped) as agent_url,
                    aiohttp.ClientSession() as session,
                ):
                    for task, one in zip(tasks, played, strict=True):
                        tokens, said = await play_over_http(session, url, task, harness, tools)
                        assert (tokens, said) == (list(one.tokens), one.answer or ""), task.id
                        asked = body_of(task, "builtin:tiny", temperature=0, return_token_ids=True)
                        await check_agent(session, agent_url, asked, one)

    asyncio.run(main())


async def check_agent(session: aiohttp.ClientSession, url: str, asked: dict[str, Any], played: Any) -> None:
    async with session.post(f"{url}/chat/completions", json=asked) as response:
        answer = await response.json()
    choice, calls = answer["choices"][0], [record for turn in played.turns for record in turn.calls]
    assert answer["prompt_token_ids"] + choice["token_ids"] == list(played.tokens)
    assert choice["message"]["content"] == (played.answer or "")
    told = choice["agent"]
    assert [call["result"] for call in told["calls"]] == [record.result.text for record in calls]
    assert (told["stop"], told["turns"]) == (played.stop.value, len(played.turns))
    assert answer["usage"]["completion_tokens"] == sum(told["action_mask"])
    async with session.post(f"{url}/chat/completions", json={**asked, "stop": "x"}) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "stop")
    async with session.post(f"{url}/chat/completions", json={**asked, "stream": True}) as response:
        events = events_of(await response.text())
    reports = [choice["agent"] for event in events for choice in event["choices"] if "agent" in choice]
    assert len(reports) == len(calls) + 1 and reports[-1] == told


def test_a_spec_with_an_agent_is_served_by_its_agent() -> None:
    async def main() -> None:
        agent = f"rollout.agent.callable={adversaries.__name__}:plain"
        spec = load_spec([SPEC], [agent, "rollout.schedule=clock"]).spec
        tokenizer = load_tokenizer(str(CHECKPOINT))
        call = '<tool_call>\n{"name": "search", "arguments": {"query": "capital"}}\n</tool_call><|im_end|>'
        policy = ScriptedPolicy(tokenizer, [call, "Paris<|im_end|>"])
        asked = ChatRequest(model="m", messages=({"role": "user", "content": "Which town?"},))
        async with _open_agent(spec, tokenizer) as served:
            assert served is not None
            for index in range(2):
                answer = await served.play(policy, served.task(asked), asked, 64, index, 0, lambda report: None)
                assert answer.report is not None
                assert (answer.text, answer.report["turns"], answer.report["stop"]) == ("Paris", 2, "answered")

    asyncio.run(main())


def test_an_agent_needs_a_spec(tmp_path: Path) -> None:
    with (
        pytest.raises(RlfError, match="has no spec with tools"),
        used_as_trained("builtin:tiny", [], [], tmp_path, plays=True),
    ):
        pass
