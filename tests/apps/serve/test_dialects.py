"""OpenAI's newer protocol and Anthropic's, as they stand on the wire."""

from __future__ import annotations

import json
from typing import Any

from .clients.question import PERSON, TOWN
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
        assert (call["type"], call["name"]) == ("tool_use", "search") and PERSON in call["input"]["query"]
        told = [{"type": "text", "text": f"In {TOWN}."}]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": told}
        turns = [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
        _, second = await ask("/v1/messages", {**ANTHROPIC, "messages": [*QUESTION, *turns]})
        assert second["content"] == [{"type": "text", "text": second["content"][0]["text"]}]
        assert second["stop_reason"] == "end_turn"
        assert 'prompt="continued"} 1' in (await ask("/metrics", None))[1]
        text = second["content"][0]["text"]
        stopped = {**ANTHROPIC, "messages": [*QUESTION, *turns], "stop_sequences": [text[1:3]]}
        _, cut = await ask("/v1/messages", stopped)
        assert (cut["stop_reason"], cut["stop_sequence"]) == ("stop_sequence", text[1:3])
        status, refused = await ask("/v1/messages", {**ANTHROPIC, "thinking": {"type": "sometimes"}})
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
        assert call["type"] == "function_call" and PERSON in json.loads(call["arguments"])["query"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": f"In {TOWN}."}
        _, second = await ask("/v1/responses", {**RESPONSES, "input": [*QUESTION, call, result]})
        (message,) = second["output"]
        assert message["content"][0]["type"] == "output_text" and message["content"][0]["text"]
        assert 'prompt="continued"} 1' in (await ask("/metrics", None))[1]

    asking(story)


def test_a_response_continues_from_an_earlier_one_by_its_id_with_the_tokens_that_were_sampled() -> None:
    async def story(ask: Ask) -> None:
        _, first = await ask("/v1/responses", RESPONSES)
        (call,) = first["output"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": f"In {TOWN}."}
        _, whole = await ask("/v1/responses", {**RESPONSES, "input": [*QUESTION, call, result]})
        later = {**RESPONSES, "input": [result], "previous_response_id": first["id"]}
        _, text = await ask("/v1/responses", {**later, "stream": True})
        second = events_of(text)[-1]["response"]
        assert second["output"][0]["content"] == whole["output"][0]["content"]
        assert (second["usage"], second["previous_response_id"]) == (whole["usage"], first["id"])
        assert 'prompt="continued"} 2' in (await ask("/metrics", None))[1]
        _, third = await ask("/v1/responses", {**RESPONSES, "input": "And?", "previous_response_id": second["id"]})
        assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"]
        _, left = await ask("/v1/responses", {**RESPONSES, "store": False})
        assert left["store"] is False
        for id_ in (left["id"], "resp_1"):
            status, refused = await ask("/v1/responses", {**RESPONSES, "previous_response_id": id_})
            assert (status, refused["error"]["code"]) == (400, "previous_response_not_found")

    asking(story)


def test_a_thread_of_anthropics_continues_with_its_tools_and_system_and_a_lost_one_is_named_to_the_client() -> None:
    async def story(ask: Ask) -> None:
        begun = {**ANTHROPIC, "system": "Be short.", "thread": {"type": "create"}}
        _, first = await ask("/v1/messages", begun)
        said = {"role": "user", "content": "And where is that?"}
        answer = {"role": "assistant", "content": first["content"]}
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": f"In {TOWN}."}
            for block in first["content"]
            if block["type"] == "tool_use"
        ]
        new = {"role": "user", "content": results} if results else said
        _, whole = await ask("/v1/messages", {**begun, "messages": [*QUESTION, answer, new]})
        continuing = {"type": "continue", "previous_message_id": first["id"]}
        delta = {key: ANTHROPIC[key] for key in ("model", "max_tokens", "temperature")}
        _, second = await ask("/v1/messages", {**delta, "messages": [new], "thread": continuing})
        assert (second["content"], second["usage"]) == (whole["content"], whole["usage"])
        lost = {**delta, "messages": [new], "thread": {"type": "continue", "previous_message_id": "msg_1"}}
        status, refused = await ask("/v1/messages", lost)
        assert (status, refused["error"]["details"]) == (404, {"error_code": "thread_not_found"})

    asking(story)


def test_the_tokens_of_a_request_are_counted_as_they_are_when_it_is_answered() -> None:
    async def story(ask: Ask) -> None:
        _, answered = await ask("/v1/messages", ANTHROPIC)
        count = {key: value for key, value in ANTHROPIC.items() if key != "max_tokens"}
        status, counted = await ask("/v1/messages/count_tokens", count)
        assert (status, counted) == (200, {"input_tokens": answered["usage"]["input_tokens"]})
        status, refused = await ask("/v1/messages/count_tokens", {**count, "model": "other"})
        assert (status, refused["type"]) == (404, "error")

    asking(story)


def test_a_key_that_nobody_knows_has_no_effect_and_is_counted_and_one_that_changes_answers_is_refused() -> None:
    async def story(ask: Ask) -> None:
        _, plain = await ask("/v1/messages", ANTHROPIC)
        tool = {**ANTHROPIC["tools"][0], "eager_input_streaming": True}
        for _ in range(2):
            status, answer = await ask("/v1/messages", {**ANTHROPIC, "new_key": {"x": 1}, "tools": [tool]})
            assert (status, answer["usage"]) == (200, plain["usage"])
        metrics = (await ask("/metrics", None))[1]
        assert 'rlf_ignored_keys_total{key="new_key"} 2' in metrics
        assert 'rlf_ignored_keys_total{key="tools.eager_input_streaming"} 2' in metrics
        for path, body, key, value in (
            ("/v1/messages", ANTHROPIC, "min_p", 0.1),
            ("/v1/messages", ANTHROPIC, "output_config", {"format": {"type": "json_schema"}}),
            ("/v1/messages", ANTHROPIC, "top_pp", 0.1),
            ("/v1/messages", ANTHROPIC, "tools", [{**ANTHROPIC["tools"][0], "defer_loading": True}]),
            ("/v1/responses", RESPONSES, "prompt", {"id": "p"}),
            ("/v1/responses", RESPONSES, "seed", 1),
        ):
            status, refused = await ask(path, {**body, key: value})
            assert status == 400 and key in refused["error"]["message"], (key, refused)

    asking(story)


def test_what_coding_agents_send_and_no_answer_depends_on_is_taken() -> None:
    async def story(ask: Ask) -> None:
        edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
        told = [*QUESTION, {"role": "system", "content": "Be brief."}]
        asked = {**ANTHROPIC, "messages": told, "output_config": {"effort": "high"}, "context_management": edits}
        status, answer = await ask("/v1/messages", asked)
        assert status == 200, answer
        edits["edits"][0]["keep"] = "none"
        status, refused = await ask("/v1/messages", {**asked, "context_management": edits})
        assert (status, "context_management" in refused["error"]["message"]) == (400, True)

    asking(story)


def test_arguments_that_a_model_did_not_finish_are_taken_back_as_they_were_returned() -> None:
    async def story(ask: Ask) -> None:
        call = {"id": "a", "type": "function", "function": {"name": "search", "arguments": "Bednox was"}}
        turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "a", "content": "x"}]
        asked = {"model": "tiny", "messages": [*QUESTION, *turns], "tools": [SEARCH], "max_tokens": 4}
        assert (await ask("/v1/chat/completions", asked))[0] == 200

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
