"""What goes wrong is answered in words: nothing that a client sends, or leaves unsent, harms the server."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import aiohttp
import pytest

from .served import QUESTION, SEARCH, Ask, asking, events_of, serving_model

CHAT = "/v1/chat/completions"
ASKED: dict[str, Any] = {"model": "tiny", "messages": QUESTION, "max_tokens": 4}
VALID: dict[str, dict[str, Any]] = {
    CHAT: {**ASKED, "tools": [SEARCH], "stop": ["x"], "stream": True, "logprobs": True, "top_logprobs": 1, "n": 2},
    "/v1/completions": {"model": "tiny", "prompt": "x", "max_tokens": 4, "logprobs": 1},
    "/v1/responses": {"model": "tiny", "input": [{"role": "user", "content": "x"}], "max_output_tokens": 4},
    "/v1/messages": {"model": "tiny", "messages": QUESTION, "max_tokens": 4, "system": "x", "tools": []},
    "/tokenize": {"messages": QUESTION},
    "/detokenize": {"tokens": [1, 2]},
}
NONSENSE: list[Any] = [
    *(None, True, -1, 0, 1e308, 2**70, "", "x", "\x00", [], {}, [[]], [{}], {"type": {}}, [1, "x"], "x" * 5000),
    *(
        [{"role": "tool"}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
        [{"role": "assistant", "tool_calls": 3}],
    ),
    *([{"type": "function", "function": {"name": "a b"}}], {"type": "function", "function": {"name": 3}}),
    *([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{" * 3000}}]}],),
]
BROKEN = [
    b"",
    b"{",
    b"[]",
    b"nul",
    b'"x"',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"a": ' * 5000,
    b'{"model": "\\ud800"}',
    b"1e999",
]


def malformed(seed: int) -> list[tuple[str, Any]]:
    """Requests of which one or two keys hold nonsense."""
    draw, requests = random.Random(seed), []
    for _ in range(200):
        path = draw.choice(list(VALID))
        body = {**VALID[path], "seed": 1} if path == CHAT else dict(VALID[path])
        for key in draw.sample([*body, "response_format", "foo", "tool_choice"], draw.choice((1, 2))):
            body[key] = draw.choice(NONSENSE)
        requests.append((path, body))
    return requests


def test_malformed_requests_are_refused_in_words_and_never_meet_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ask: Ask) -> None:
        for path, body in [*malformed(0), *((path, data) for path in VALID for data in BROKEN)]:
            status, answer = await ask(path, body)
            assert status in (200, 400, 404), (path, body, answer)
            if status != 200:
                words = answer["error"]["message"]
                assert words and "Traceback" not in words, (path, body)
        assert (await ask("/health", None))[0] == 200

    asking(story)
    assert not [record for record in caplog.records if record.levelname != "WARNING"]


def test_paths_and_methods_that_are_not_there_are_named() -> None:
    async def story(ask: Ask) -> None:
        assert (await ask("/v2/chat", {}))[0] == 404
        assert (await ask(CHAT, None))[0] == 405
        assert (await ask("/v1/models/other", None))[0] == 404

    asking(story)


def test_a_body_that_is_too_large_is_refused() -> None:
    async def story(ask: Ask) -> None:
        status, body = await ask(CHAT, b'{"model": "' + b"x" * 200_000 + b'"}')
        assert (status, body["error"]["type"]) == (413, "request_too_large")

    asking(story, max_body_bytes=100_000)


def test_a_client_that_sends_slowly_is_given_up_in_the_form_of_its_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> bytes:
        async with serving_model() as url:
            port = int(url.removesuffix("/v1").rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
            writer.write(head.encode() + b'{"model"')
            answer = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            return answer

    monkeypatch.setattr("rlf.core.servers.BODY_S", 0.2)
    answer = asyncio.run(main())
    assert b" 408 " in answer.partition(b"\r\n")[0]
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error["message"] == "the body did not arrive within 0.2 s"


def test_the_key_is_wanted_in_either_header_and_compared_whole() -> None:
    async def main() -> list[int]:
        statuses = []
        async with serving_model(api_key="secret") as url, aiohttp.ClientSession() as session:
            bearer = [{"Authorization": f"Bearer {key}"} for key in ("secret", "secre", "secrets", "", "é")]
            for headers in [*bearer, {"x-api-key": "secret"}, {"Authorization": "Basic secret"}, {}]:
                async with session.get(f"{url}/models", headers=headers) as response:
                    statuses.append(response.status)
            async with session.get(f"{url.removesuffix('/v1')}/health") as response:
                statuses.append(response.status)
        return statuses

    assert asyncio.run(main()) == [200, 401, 401, 401, 401, 200, 401, 401, 200]


def long(**keys: Any) -> dict[str, Any]:
    """A request that takes its time."""
    return {"model": "tiny", "prompt": "x", "max_tokens": 900, "ignore_eos": True, "seed": 0, **keys}


def test_a_full_server_asks_to_come_again() -> None:
    async def main() -> list[tuple[int, str | None]]:
        async with serving_model(num_slots=1, max_queue=1) as url, aiohttp.ClientSession() as session:

            async def ask() -> tuple[int, str | None]:
                async with session.post(f"{url}/completions", json=long(max_tokens=100)) as response:
                    await response.read()
                    return response.status, response.headers.get("Retry-After")

            return await asyncio.gather(*(ask() for _ in range(4)))

    answers = asyncio.run(main())
    assert sorted(status for status, _ in answers) == [200, 200, 429, 429]
    assert all(int(after or 0) >= 1 for status, after in answers if status == 429)


def test_more_answers_than_there_may_ever_be_are_refused_for_good() -> None:
    async def main() -> tuple[int, str | None, str]:
        async with (
            serving_model(num_slots=1, max_queue=1) as url,
            aiohttp.ClientSession() as session,
            session.post(f"{url}/completions", json=long(n=3)) as response,
        ):
            return response.status, response.headers.get("Retry-After"), await response.text()

    status, retry, text = asyncio.run(main())
    assert (status, retry) == (400, None)
    assert "at most 2" in text


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async def story(ask: Ask) -> None:
        status, body = await ask("/v1/completions", long())
        assert (status, body["error"]["code"]) == (504, "timeout")
        status, text = await ask("/v1/completions", long(stream=True))
        assert status == 200 and events_of(text)[-1]["error"]["code"] == "timeout"

    asking(story, request_s=0.5)


@pytest.mark.parametrize("stream", [True, False])
def test_what_nobody_waits_for_any_more_is_not_sampled(stream: bool) -> None:
    async def main() -> None:
        async with serving_model() as url, aiohttp.ClientSession() as session:
            response = await session.post(f"{url}/completions", json=long(stream=True)) if stream else None
            if response is not None:
                await response.content.readany()
                response.close()
            else:
                with pytest.raises(TimeoutError):
                    await session.post(f"{url}/completions", json=long(), timeout=aiohttp.ClientTimeout(0.3))
            for _ in range(100):
                async with session.get(f"{url.removesuffix('/v1')}/metrics") as metrics:
                    text = await metrics.text()
                if "rlf_answers_running 0" in text:
                    break
                await asyncio.sleep(0.05)
            assert "rlf_answers_running 0" in text
            assert 'rlf_tokens_total{kind="sampled"}' not in text

    asyncio.run(main())


def test_a_slow_answer_is_kept_alive_by_comments() -> None:
    async def story(ask: Ask) -> None:
        _, text = await ask("/v1/completions", long(max_tokens=60, stream=True))
        assert ": keep-alive\n\n" in text
        assert json.loads(text.split("data: ")[1].split("\n")[0])["object"] == "text_completion"

    asking(story, keep_alive_s=1e-5)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({"role": "user", "content": "x", "name": "Ann"}, "name"),
        ({"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
        ({"role": "assistant", "content": "x", "thinking_blocks": [{"thinking": "x"}]}, "thinking_blocks"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "audio"),
        ({"role": "assistant", "content": "x", "reasoning_content": ["x"]}, "reasoning_content"),
        ({"role": "user", "content": [{"type": "text"}]}, "content"),
    ],
)
def test_a_part_of_a_message_that_the_prompt_would_not_show_is_refused_by_name(
    message: dict[str, Any], key: str
) -> None:
    async def story(ask: Ask) -> tuple[int, Any]:
        answer: tuple[int, Any] = await ask(CHAT, {**ASKED, "messages": [*QUESTION, message, *QUESTION]})
        return answer

    status, answer = asking(story)
    assert status == 400
    assert f"messages.1.{key}: " in answer["error"]["message"]


def test_keys_that_clients_send_back_from_an_answer_are_taken() -> None:
    empty = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    turn = {"role": "assistant", "content": "Oslo", **empty, "id": "1", "provider_specific_fields": {"a": 1}}
    turn["reasoning_content"] = "Hm."

    async def story(ask: Ask) -> int:
        return (await ask(CHAT, {**ASKED, "messages": [*QUESTION, turn, *QUESTION]}))[0]

    assert asking(story) == 200
