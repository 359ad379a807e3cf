"""What ordinary clients of the OpenAI protocol ask, whole and as streams."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from rlf.apps.serve.generation import AnswerRequest, Answers, HostGate, Metrics
from rlf.apps.serve.turns import TurnReader
from rlf.types.policy import Finish, Host, Sample, Sampling

from .clients.question import FACT
from .served import QUESTION, SEARCH, Ask, asking, events_of

CHAT = "/v1/chat/completions"
ASKED = {"model": "tiny", "messages": QUESTION, "temperature": 0, "max_tokens": 40}


def folded(events: list[Any]) -> dict[str, Any]:
    """The choice that the chunks of a stream add up to."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    finish, ids = None, []
    for choice in (choice for event in events for choice in event["choices"]):
        delta, ids = choice["delta"], ids + choice.get("token_ids", [])
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            if part["index"] == len(calls):
                calls.append({key: value for key, value in part.items() if key != "index"})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        finish = choice["finish_reason"] or finish
    return {"message": message, "finish_reason": finish, "token_ids": ids}


NEUTRAL: list[dict[str, Any]] = [
    {"parallel_tool_calls": True},
    {"response_format": {"type": "text"}},
    {"frequency_penalty": 0},
    {"presence_penalty": 0.0},
    {"metadata": {"a": "b"}},
    {"store": False},
    {"n": 2},
    {"stream_options": {"include_usage": True}},
    {"top_k": 5},
    {"min_p": 0.1},
    {"chat_template_kwargs": {}},
    {"reasoning_effort": None},
    {"logit_bias": {}},
    {"return_token_ids": True},
    {"user": "me", "service_tier": "auto"},
]


def test_keys_that_ask_for_nothing_are_taken() -> None:
    async def story(ask: Ask) -> None:
        for key in NEUTRAL:
            status, body = await ask(CHAT, {**ASKED, **key})
            assert status == 200, (key, body)

    asking(story)


def test_answers_come_in_the_order_of_their_indices_whichever_ends_first() -> None:
    class LastFirst:
        """Ends the answer with the highest seed first."""

        num_slots, max_tokens = 3, 8

        async def complete(self, prompt: Any, max_tokens: int, sampling: Sampling, seed: int, watch: Any) -> Sample:
            await asyncio.sleep((2 - seed) / 50)
            return Sample([seed], [0.0], Finish.STOP)

    async def main() -> list[int]:
        gate = HostGate(cast("Host", LastFirst()), 0, Metrics())
        asked = [AnswerRequest(n, [0], 1, Sampling(), n, TurnReader(None, calls=False), str) for n in range(3)]
        return [delta.index for delta in await Answers(gate, asked, live=False).whole()]

    assert asyncio.run(main()) == [0, 1, 2]


@pytest.mark.parametrize("tools", [[], [SEARCH]])
def test_the_chunks_of_a_stream_add_up_to_the_whole_answer(tools: list[Any]) -> None:
    async def story(ask: Ask) -> None:
        asked = {**ASKED, "tools": tools, "return_token_ids": True}
        _, whole = await ask(CHAT, asked)
        status, text = await ask(CHAT, {**asked, "stream": True, "stream_options": {"include_usage": True}})
        assert status == 200 and text.endswith("data: [DONE]\n\n")
        events = events_of(text)
        found, (choice,) = folded(events), whole["choices"]
        assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
        assert events[-1]["usage"] == whole["usage"]
        assert (found["token_ids"], found["finish_reason"]) == (choice["token_ids"], choice["finish_reason"])
        said, expected = found["message"], choice["message"]
        assert said["content"] == (expected["content"] or "")
        assert [c["function"] for c in said.get("tool_calls", ())] == [
            c["function"] for c in expected.get("tool_calls", ())
        ]

    asking(story)


def test_a_conversation_goes_on_with_the_tokens_that_were_sampled() -> None:
    async def story(ask: Ask) -> None:
        asked = {**ASKED, "tools": [SEARCH], "return_token_ids": True}
        _, first = await ask(CHAT, asked)
        message = first["choices"][0]["message"]
        sampled = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
        call = message["tool_calls"][0]
        # What a client may do to arguments on the way: the same object in another spelling.
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":"))
        result = {"role": "tool", "tool_call_id": call["id"], "content": FACT}
        _, second = await ask(CHAT, {**asked, "messages": [*QUESTION, message, result]})
        assert second["prompt_token_ids"][: len(sampled)] == sampled
        assert 'prompt="continued"} 1' in (await ask("/metrics", None))[1]
        call["id"] = "another"
        _, third = await ask(CHAT, {**asked, "messages": [*QUESTION, message, {**result, "tool_call_id": "another"}]})
        assert third["choices"][0]["message"]["content"] == second["choices"][0]["message"]["content"]
        assert 'prompt="rendered"} 1' in (await ask("/metrics", None))[1]

    asking(story)


def test_a_demanded_call_is_made() -> None:
    other = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}

    async def story(ask: Ask) -> None:
        named = {"type": "function", "function": {"name": "weather"}}
        for choice, names in (("required", {"search"}), (named, {"weather"})):
            asked = {**ASKED, "tools": [SEARCH, other], "tool_choice": choice, "max_tokens": 12}
            status, body = await ask(CHAT, asked)
            assert status == 200, body
            calls = body["choices"][0]["message"]["tool_calls"]
            assert {call["function"]["name"] for call in calls} == names
            assert body["choices"][0]["finish_reason"] == "tool_calls"
        for tools, choice in (([], "required"), ([SEARCH], named)):
            status, body = await ask(CHAT, {**ASKED, "tools": tools, "tool_choice": choice})
            assert (status, body["error"]["param"]) == (400, "tool_choice")

    asking(story)


def test_tokens_and_texts_are_given_for_each_other() -> None:
    async def story(ask: Ask) -> None:
        _, answer = await ask("/tokenize", {"prompt": "Tukkes is", "return_token_strs": True})
        assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
        assert (await ask("/detokenize", {"tokens": answer["tokens"]}))[1] == {"prompt": "Tukkes is"}
        _, chat = await ask(CHAT, {**ASKED, "return_token_ids": True})
        assert (await ask("/tokenize", {"messages": QUESTION}))[1]["tokens"] == chat["prompt_token_ids"]

    asking(story)


def test_logprobs_are_those_of_the_temperature_that_was_sampled_at() -> None:
    async def story(ask: Ask) -> None:
        asked = {**ASKED, "temperature": 0.5, "seed": 1, "logprobs": True, "top_logprobs": 20, "max_tokens": 3}
        _, body = await ask(CHAT, asked)
        for token in body["choices"][0]["logprobs"]["content"]:
            assert bytes(token["bytes"]).decode() == token["token"]
            near = {other["token_id"]: other["logprob"] for other in token["top_logprobs"]}
            assert near.get(token["token_id"], token["logprob"]) == pytest.approx(token["logprob"], abs=1e-4)

    asking(story)
