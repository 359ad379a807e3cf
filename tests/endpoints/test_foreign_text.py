"""Text of servers that is not valid Unicode: in answers, streams, errors and the words of a status."""

from __future__ import annotations

import asyncio
import json

from rlf.endpoints.openai import StreamedChat, read_answer, read_chat
from rlf.endpoints.spec import EndpointFailure, Usage
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, ToolCall, ToolResult
from tests.endpoints.servers import raw_serving


def call(url: str, **target: str) -> ToolResult:
    """One call of an HTTP tool."""

    async def go() -> ToolResult:
        declaration = ToolDeclaration.model_validate(
            {
                "name": "ask",
                "description": "Ask.",
                "inputSchema": {"type": "object", "properties": {}},
                "target": {"kind": "http", "url": url, "method": "GET", **target},
            }
        )
        async with Executor([declaration]) as executor:
            return await executor.invoke(ToolCall("ask", {}), trajectory_id="t")

    return asyncio.run(go())


def serve(head: bytes, body: bytes, **target: str) -> ToolResult:
    """The result of a call that a server answers so."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 " + head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    found: list[ToolResult] = []

    async def main() -> None:
        async with raw_serving(handle) as url:
            found.append(await asyncio.to_thread(call, f"{url}/ask", **target))

    asyncio.run(main())
    return found[0]


def test_a_status_and_a_body_that_are_not_utf_8_are_an_error_in_valid_text() -> None:
    result = serve(b"404 caf\xe9\r\nContent-Type: text/plain; charset=caf\xe9", b"caf\xe9")
    assert result.outcome is Outcome.TOOL_ERROR
    result.text.encode()


def test_half_of_a_character_in_an_answer_is_replaced() -> None:
    head = b"200 OK\r\nContent-Type: application/json"
    result = serve(head, b'{"a": "half \\ud83d", "\\udce9": "\\ud83d\\ude00"}')
    assert result.outcome is Outcome.OK
    assert json.loads(result.text) == {"a": "half \ufffd", "\ufffd": "😀"}
    assert serve(head, b'{"a": "half \\ud83d"}', result="{{ response.a }}").text == "half \ufffd"
    json.dumps(result.structured, ensure_ascii=False).encode()


def test_a_models_answer_is_valid_text() -> None:
    call = {"id": "\udce9", "function": {"name": "f\udce9", "arguments": "{}"}}
    answer = {"choices": [{"message": {"content": "half \ud83d", "tool_calls": [call]}}]}
    completion = read_chat(read_answer(json.dumps(answer).encode()), Usage())
    assert completion.text == "half \ufffd"
    assert completion.calls[0].name == "f\ufffd"


def test_halves_that_come_in_two_events_of_a_stream_are_one_character() -> None:
    seen: list[str] = []
    chat = StreamedChat(seen.append)
    for half in (r"\ud83d", r"\ude00"):
        chat.feed(b'data: {"choices": [{"delta": {"content": "%s"}}]}\n' % half.encode())
    chat.feed(b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n')
    assert read_chat(chat.answer(), Usage()).text == "😀"
    "".join(seen).encode()


def test_the_words_of_a_failure_are_valid_text() -> None:
    assert EndpointFailure(Outcome.SERVICE_ERROR, "HTTP 500 caf\udce9").text == "HTTP 500 caf\ufffd"
