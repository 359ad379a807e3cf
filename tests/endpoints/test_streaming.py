"""An answer that is streamed is the answer that is not, and is shown while it comes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rlf.core.meter import Meter
from rlf.endpoints.openai import Completion, StreamedChat
from rlf.endpoints.pool import Caller, EndpointPool
from rlf.endpoints.spec import EndpointFailure, EndpointSpec, SamplingSpec
from tests.apps.serve.served import QUESTION, SEARCH, serving_model
from tests.endpoints.test_pool import ASK, HELLO, scripted, with_pool


def stream(*events: Any) -> tuple[list[str], StreamedChat]:
    """What was shown of a stream that comes in pieces of seven bytes, and the stream."""
    shown: list[str] = []
    data = b": keep-alive\r\n\r\n" + b"".join(b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events)
    chat = StreamedChat(shown.append)
    for at in range(0, len(data), 7):
        chat.feed(data[at : at + 7])
    return shown, chat


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def test_pieces_become_the_answer_and_its_text_is_shown_as_it_grows() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"x": 1}'}}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    said = [delta(role="assistant", content=""), delta(content="one "), delta(content="é"), delta(tool_calls=[call])]
    shown, chat = stream(*said, delta(tool_calls=[more]), delta("tool_calls"), {"choices": [], "usage": usage})
    assert shown == ["one ", "one é"]
    answer = chat.answer()
    message = answer["choices"][0]["message"]
    assert (message["content"], answer["usage"], answer["choices"][0]["finish_reason"]) == (
        "one é",
        usage,
        "tool_calls",
    )
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x": 1}'}


def test_a_stream_that_is_cut_off_or_no_stream_is_a_failure() -> None:
    with pytest.raises(EndpointFailure, match="ends before its answer does"):
        stream(delta(content="one"))[1].answer()
    with pytest.raises(EndpointFailure, match="JSON list"):
        stream([1])
    with pytest.raises(EndpointFailure, match="not JSON"):
        StreamedChat(print).feed(b"data: {\n")
    assert stream(delta(content="one"), {"error": {"message": "m"}})[1].answer()["error"] == {"message": "m"}


def test_a_server_that_streams_nothing_answers_all_the_same() -> None:
    bodies, handler = scripted((200, HELLO, {}))
    shown: list[str] = []
    found = with_pool(lambda pool: pool.chat(ASK, Caller(5.0, watch=shown.append)), handler)
    assert found.text == "hello" and bodies[0]["stream"] is True and not shown


def test_a_streamed_answer_of_a_server_is_the_whole_one() -> None:
    async def ask() -> tuple[Completion, Completion, list[str], Meter]:
        shown, meter, greedy = list[str](), Meter(), SamplingSpec(temperature=0.0, max_tokens=60)
        async with serving_model(name="m") as url:
            pool = EndpointPool([EndpointSpec(url=url, model="m")])
            whole = await pool.chat(QUESTION, Caller(60.0), sampling=greedy, tools=[SEARCH])
            caller = Caller(60.0, meter, watch=shown.append)
            streamed = await pool.chat(QUESTION, caller, sampling=greedy, tools=[SEARCH])
            await pool.close()
        return whole, streamed, shown, meter

    whole, streamed, shown, meter = asyncio.run(ask())
    assert (whole.text, whole.finish_reason, whole.usage) == (streamed.text, streamed.finish_reason, streamed.usage)
    assert [(c.name, c.arguments) for c in whole.calls] == [(c.name, c.arguments) for c in streamed.calls]
    assert (shown[-1] if shown else "") == streamed.text
    assert meter.usage["completion_tokens"] == streamed.usage.completion_tokens
