"""OpenAI's newer protocol and Anthropic's, as they stand on the wire."""

from __future__ import annotations

import json
from typing import Any

from .served import QUESTION, SEARCH, Ask, asking, events_of

PARAMETERS = SEARCH["function"]["parameters"]  # type: ignore[index]
ANTHROPIC: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 40,
    "temperature": 0,
    "messages": QUESTION,
    "tools": [{"name": "search", "description": "S.", "input_schema": PARAMETERS}],
}
RESPONSES: dict[str, Any] = {
    "model": "tiny",
    "input": QUESTION[0]["content"],
    "temperature": 0,
    "tools": [{"type": "function", "name": "search", "description": "S.", "parameters": PARAMETERS}],
}


def test_a_tool_is_called_and_answered_in_anthropics_words() -> None:
    async def story(ask: Ask) -> None:
        status, first = await ask("/v1/messages", ANTHROPIC)
        assert (status, first["stop_reason"], first["type"]) == (200, "tool_use", "message")
        (call,) = first["content"]
        assert (call["type"], call["name"]) == ("tool_use", "search") and "Bednox" in call["input"]["query"]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "In Tukkes."}]}
        turns = [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
        _, second = await ask("/v1/messages", {**ANTHROPIC, "messages": [*QUESTION, *turns]})
        assert second["content"] == [{"type": "text", "text": second["content"][0]["text"]}]
        assert second["stop_reason"] == "end_turn"
        assert 'prompt="continued"} 1' in (await ask("/metrics", None))[1]
        text = second["content"][0]["text"]
        stopped = {**ANTHROPIC, "messages": [*QUESTION, *turns], "stop_sequences": [text[1:3]]}
        _, cut = await ask("/v1/messages", stopped)
        assert (cut["stop_reason"], cut["stop_sequence"]) == ("stop_sequence", text[1:3])
        status, refused = await ask("/v1/messages", {**ANTHROPIC, "thinking": {"type": "enabled", "budget_tokens": 9}})
        assert (status, refused["type"], refused["error"]["type"]) == (400, "error", "invalid_request_error")

    asking(story)


def test_a_stream_in_anthropics_words_opens_and_closes_each_block() -> None:
    async def story(ask: Ask) -> None:
        _, text = await ask("/v1/messages", {**ANTHROPIC, "stream": True})
        events = events_of(text)
        assert [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")] == [
            event["type"] for event in events
        ]
        assert [event["type"] for event in events] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        assert json.loads(events[2]["delta"]["partial_json"])["query"]
        assert events[4]["delta"]["stop_reason"] == "tool_use" and events[4]["usage"]["output_tokens"] > 0

    asking(story)


def test_a_tool_is_called_and_answered_by_responses() -> None:
    async def story(ask: Ask) -> None:
        status, first = await ask("/v1/responses", RESPONSES)
        assert (status, first["status"], first["object"]) == (200, "completed", "response")
        (call,) = first["output"]
        assert call["type"] == "function_call" and "Bednox" in json.loads(call["arguments"])["query"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "In Tukkes."}
        _, second = await ask("/v1/responses", {**RESPONSES, "input": [*QUESTION, call, result]})
        (message,) = second["output"]
        assert message["content"][0]["type"] == "output_text" and message["content"][0]["text"]
        assert 'prompt="continued"} 1' in (await ask("/metrics", None))[1]
        status, refused = await ask("/v1/responses", {**RESPONSES, "previous_response_id": "resp_1"})
        assert (status, refused["error"]["param"]) == (400, "previous_response_id")

    asking(story)


def test_the_events_of_responses_are_numbered_and_add_up() -> None:
    async def story(ask: Ask) -> None:
        _, text = await ask("/v1/responses", {**RESPONSES, "tools": [], "stream": True})
        events = events_of(text)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
        said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        assert said == events[-1]["response"]["output"][0]["content"][0]["text"] != ""

    asking(story)


def test_judges_servers_speak_the_plain_protocol_alone() -> None:
    async def story(ask: Ask) -> None:
        assert [(await ask(path, {}))[0] for path in ("/v1/responses", "/v1/messages")] == [404, 404]

    asking(story, strict=True)
