"""Endpoints that fail, are busy or lie, and the pool that gets an answer all the same, or says why not."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from rlf.core import RlfError
from rlf.core.meter import Meter
from rlf.endpoints import pool as pool_module
from rlf.endpoints.openai import Completion, image_part, text_part
from rlf.endpoints.pool import Caller, EndpointPool, open_pool
from rlf.endpoints.spec import EndpointFailure, EndpointSpec, Prices, SamplingSpec, Usage
from rlf.types import Image, Outcome
from tests.endpoints.servers import Handler, closed_port, raw_serving, serving

HELLO = {
    "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
ASK = [{"role": "user", "content": "x"}]
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0"


def scripted(*answers: tuple[int, Any, dict[str, str]]) -> tuple[list[dict[str, Any]], Handler]:
    """A handler that gives one answer after the other, the last for ever, and the bodies that it was sent."""
    bodies: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json() if request.can_read_body else {})
        status, body, headers = answers[min(len(bodies), len(answers)) - 1]
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, headers=headers, content_type="application/json")

    return bodies, answer


def with_pool(story: Callable[[EndpointPool], Awaitable[Any]], *handlers: Handler, **keys: Any) -> Any:
    """Runs a story with a pool over one server per handler."""

    async def main(urls: list[str]) -> Any:
        if len(urls) < len(handlers):
            async with serving(_=handlers[len(urls)]) as url:
                return await main([*urls, url])
        pool = EndpointPool([EndpointSpec(url=f"{url}/v1", model="m", **keys) for url in urls])
        try:
            return await story(pool)
        finally:
            await pool.close()

    return asyncio.run(main([]))


def chat(deadline_s: float = 5.0, **keys: Any) -> Callable[[EndpointPool], Awaitable[Completion]]:
    return lambda pool: pool.chat(ASK, Caller(deadline_s), **keys)


def failing(story: Callable[[EndpointPool], Awaitable[Any]], *handlers: Handler, **keys: Any) -> EndpointFailure:
    with pytest.raises(EndpointFailure) as caught:
        with_pool(story, *handlers, **keys)
    return caught.value


def test_a_completion_comes_with_what_it_used_up() -> None:
    bodies, handler = scripted((200, HELLO, {}))
    prices = Prices(prompt_usd=10, completion_usd=100)
    completion = with_pool(chat(sampling=SamplingSpec(temperature=0, extra={"top_k": 3})), handler, prices=prices)
    assert completion.text == "hello"
    assert completion.usage == Usage(3, 2, pytest.approx(230e-6))  # (3 * 10 + 2 * 100) / 1e6
    assert bodies == [{"model": "m", "messages": ASK, "temperature": 0, "top_k": 3}]


@pytest.mark.parametrize(
    "fault",
    [
        (500, "", {}),
        (503, "", {}),
        (429, "", {}),
        (429, "", {"Retry-After": "0"}),
        (200, {"error": {"message": "the engine is dead"}}, {}),
        (200, {"object": "error", "message": "the engine is dead"}, {}),
        (200, '{"choices": [{"mess', {}),
        (200, "", {}),
        (200, [], {}),
        (200, {"choices": []}, {}),
        (200, {"choices": [{"finish_reason": "stop"}]}, {}),
        (200, {"choices": [{"message": {"tool_calls": [{}]}}]}, {}),
        (200, "[" * 100_000, {}),
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(fault: tuple[int, Any, dict[str, str]]) -> None:
    bodies, handler = scripted(fault, HELLO_ONCE)
    assert with_pool(chat(), handler).text == "hello"
    assert len(bodies) == 2


HELLO_ONCE: tuple[int, Any, dict[str, str]] = (200, HELLO, {})


PAGE = "<!DOCTYPE html>\n<title>Welcome</title>"
NONSENSE = [
    (PAGE, f"{len(PAGE)} bytes that are not JSON: <!DOCTYPE html> <title>Welcome</title>"),
    ('{"choices": [{"mess', '19 bytes that are not JSON: {"choices": [{"mess'),
    ({"choices": []}, 'no choices: {"choices": []}'),
    ({"choices": [{"text": "x"}]}, 'a choice without a message: {"text": "x"}'),
    ([7], "a JSON list: [7]"),
    ("", "0 bytes that are not JSON"),
]


@pytest.mark.parametrize(("body", "words"), NONSENSE)
def test_what_gives_no_answer_of_a_model_at_all_is_called_so_with_its_words(
    body: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_FIRST_REST_S", 0.001)
    monkeypatch.setattr(pool_module, "_MAX_REST_S", 0.02)
    monkeypatch.setattr(pool_module, "_FIRST_LASTING_S", 0.05)
    gone = with_pool(find_gone, scripted((200, body, {}))[1])
    assert gone and re.match(r"none of \d+ answers of http://127", gone[0]) and words in gone[0]


async def find_gone(pool: EndpointPool) -> list[str]:
    """What failures say of many requests that waiting is in vain."""
    found = await asyncio.gather(*(pool.chat(ASK, Caller(5)) for _ in range(40)), return_exceptions=True)
    await asyncio.sleep(0.1)
    found += await asyncio.gather(pool.chat(ASK, Caller(5)), return_exceptions=True)
    assert all(isinstance(each, EndpointFailure | Completion) for each in found)
    return [each.text for each in found if isinstance(each, EndpointFailure) and each.outcome is Outcome.GONE]


@pytest.mark.parametrize(
    "answer", [(200, PAGE, {}), (401, {"error": "expired"}, {}), (403, PAGE, {}), (404, {"message": "no model m"}, {})]
)
def test_nothing_but_refusals_after_an_answer_is_waited_for_no_longer_than_a_restart_takes(
    answer: tuple[int, Any, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_FIRST_REST_S", 0.001)
    monkeypatch.setattr(pool_module, "_MAX_REST_S", 0.01)
    assert with_pool(find_gone, scripted(HELLO_ONCE, answer)[1]) == []
    assert with_pool(find_gone, scripted(*[answer] * 20, HELLO_ONCE, answer)[1]) == []
    monkeypatch.setattr(pool_module, "_LASTING_S", 0.05)
    gone = with_pool(find_gone, scripted(HELLO_ONCE, answer)[1])
    assert gone and re.match(r"none of \d+ answers of http://127.* can be used, the last: ", gone[0])


@pytest.mark.parametrize(
    "answer", [(200, {"error": "the engine is dead"}, {}), (408, "", {}), (429, "", {}), (503, "", {})]
)
def test_what_is_busy_or_broken_is_never_gone(
    answer: tuple[int, Any, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_MAX_REST_S", 0.001)
    monkeypatch.setattr(pool_module, "_FIRST_LASTING_S", 0.0)
    assert with_pool(find_gone, scripted(answer)[1]) == []


def test_a_web_site_is_refused_when_a_pool_is_opened_and_a_list_of_models_that_is_none_is_not() -> None:
    async def opened(say: Callable[[str], tuple[int, str]]) -> None:
        async def answer(request: web.Request) -> web.Response:
            status, text = say(request.method)
            return web.Response(status=status, text=text, content_type="text/html")

        async with serving(_=answer) as url:
            await (await open_pool([EndpointSpec(url=f"{url}/v1", model="m")])).close()

    with pytest.raises(RlfError, match=r"no endpoint can be used: http://127.*not JSON: <!DOCTYPE html> <title>Wel"):
        asyncio.run(opened(lambda method: (200, PAGE)))
    asyncio.run(opened(lambda method: (200, PAGE) if method == "GET" else (400, '{"error": "no messages"}')))
    asyncio.run(opened(lambda method: (404, PAGE)))


def test_a_dead_endpoint_a_cut_stream_and_an_error_body_are_typed() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()

    async def outcome(url: str) -> EndpointFailure:
        pool = EndpointPool([EndpointSpec(url=url, model="m")])
        try:
            with pytest.raises(EndpointFailure) as caught:
                await pool.chat(ASK, Caller(1))
            return caught.value
        finally:
            await pool.close()

    async def main() -> None:
        assert (await outcome(await closed_port())).outcome is Outcome.UNREACHABLE
        async with raw_serving(cut) as url:
            assert (await outcome(url)).outcome is Outcome.UNREACHABLE

    asyncio.run(main())
    _, handler = scripted((200, {"error": "dead"}, {}))
    failure = failing(chat(deadline_s=1), handler)
    assert (failure.outcome, failure.text) == (Outcome.SERVICE_ERROR, "the endpoint answered with an error: dead")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": ""}, "the model's answer is empty (finish_reason: stop)"),
        ({"content": None}, "the model's answer is empty (finish_reason: stop)"),
        ({"content": " \n"}, "the model's answer is empty (finish_reason: stop)"),
        ({"content": None, "refusal": "I will not."}, "the model refused: I will not. (finish_reason: stop)"),
        ({"content": "<think>hm</think>\n"}, "the model's answer is empty (finish_reason: stop)"),
    ],
)
def test_a_completion_is_never_silently_empty(message: dict[str, Any], said: str) -> None:
    bodies, handler = scripted((200, {"choices": [{"message": message, "finish_reason": "stop"}]}, {}))
    failure = failing(chat(), handler)
    assert (failure.outcome, failure.text) == (Outcome.TOOL_ERROR, said)
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("content", "finish", "unit", "words"),
    [
        ("", "length", "truncated_answers", "token limit cut its answer, before it wrote anything"),
        ("<think>long", "length", "truncated_answers", "cut its answer while it was thinking"),
        ("half of it", "content_filter", "filtered_answers", "content filter blocked"),
        ("", "stop", "empty_answers", "answer is empty"),
    ],
)
def test_a_cut_a_filtered_and_an_empty_answer_are_distinguished(
    content: str, finish: str, unit: str, words: str
) -> None:
    _, handler = scripted((200, {"choices": [{"message": {"content": content}, "finish_reason": finish}]}, {}))
    meter = Meter()
    failure = failing(lambda pool: pool.chat(ASK, Caller(5, meter)), handler)
    assert words in failure.text
    assert meter.usage == {"requests": 1, "requests_without_usage": 1, unit: 1}


@pytest.mark.parametrize(
    ("content", "thought", "said"),
    [
        ("<think>\nhm\n</think>\n\nyes", "hm", "yes"),
        ("hm</think>yes", "hm", "yes"),
        ("say `<think>` loud", "", "say `<think>` loud"),
        ("yes", "", "yes"),
    ],
)
def test_what_a_model_thinks_is_no_part_of_its_answer(content: str, thought: str, said: str) -> None:
    _, handler = scripted((200, {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}, {}))
    completion = with_pool(chat(), handler)
    assert (completion.reasoning, completion.text) == (thought, said)


def test_every_request_of_a_call_is_counted_and_every_cost_that_is_reported() -> None:
    paid = {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.5}}
    _, handler = scripted((500, paid, {}), (200, {"error": "dead", **paid}, {}), (503, "", {}), (200, HELLO | paid, {}))
    meter = Meter()
    with_pool(lambda pool: pool.chat(ASK, Caller(10, meter)), handler)
    assert meter.usage == {
        "requests": 4,
        "requests_without_usage": 1,
        "prompt_tokens": 9,
        "completion_tokens": 6,
        "cost_usd": 1.5,
    }


def test_a_request_that_is_late_or_cancelled_is_counted() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    meter = Meter()
    assert failing(lambda pool: pool.chat(ASK, Caller(0.2, meter)), hang).outcome is Outcome.TIMEOUT
    assert meter.usage == {"requests": 1, "requests_without_usage": 1}


@pytest.mark.parametrize("absurd", [-5, float("nan"), float("inf"), 1e30, "12", True, 2.5, [3], 10**400])
def test_usage_that_cannot_be_true_is_not_counted(absurd: Any) -> None:
    usage = {"prompt_tokens": absurd, "completion_tokens": 4, "cost": absurd}
    _, handler = scripted((200, HELLO | {"usage": usage}, {}))
    meter = Meter()
    prices = Prices(prompt_usd=1, completion_usd=1e6)
    with_pool(lambda pool: pool.chat(ASK, Caller(5, meter)), handler, prices=prices)
    expected = {"requests": 1, "prompt_tokens": 0, "completion_tokens": 4, "cost_usd": 4.0, "absurd_usage": 1}
    if absurd == 2.5:  # dollars may be so
        expected["cost_usd"] = 2.5
    assert meter.usage == expected


def test_cached_tokens_have_a_price_of_their_own() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 90}}
    _, handler = scripted((200, HELLO | {"usage": {"prompt_tokens": 100, "completion_tokens": 1, **details}}, {}))
    prices = Prices(prompt_usd=10, cached_usd=1, completion_usd=100)
    usage = with_pool(chat(), handler, prices=prices).usage
    assert usage == Usage(100, 1, pytest.approx(290e-6), 90)  # (10 * 10 + 90 * 1 + 1 * 100) / 1e6


def test_waiting_for_a_slot_is_no_part_of_the_deadline() -> None:
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(request: web.Request) -> web.Response:
        if (await request.json())["messages"] == []:
            held.set()
            await release.wait()
        return web.json_response(HELLO)

    waited: list[str] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        waited.append("begins")
        asyncio.get_running_loop().call_later(0.4, release.set)
        yield
        waited.append("ends")

    async def story(pool: EndpointPool) -> Completion:
        holder = asyncio.create_task(pool.chat([], Caller(30)))
        await held.wait()
        found = await pool.chat(ASK, Caller(0.3, waiting=waiting))
        await holder
        return found

    assert with_pool(story, hold, max_concurrency=1).text == "hello"
    assert waited == ["begins", "ends"]


def test_a_request_that_is_wrong_is_not_repeated() -> None:
    bodies, handler = scripted((400, {"error": {"message": "no such parameter"}}, {}))
    failure = failing(chat(), handler)
    assert (failure.outcome, failure.status, len(bodies)) == (Outcome.TOOL_ERROR, 400, 1)
    assert "no such parameter" in failure.text


def test_a_pause_beyond_the_deadline_is_not_waited_for() -> None:
    bodies, handler = scripted((429, "", {"Retry-After": "1000000000"}))
    started = time.perf_counter()
    failure = failing(chat(deadline_s=30), handler)
    assert time.perf_counter() - started < 10
    assert (failure.outcome, failure.retry_after_s, len(bodies)) == (Outcome.RATE_LIMITED, 1e9, 1)


def test_another_endpoint_answers_for_one_that_fails() -> None:
    dead, broken = scripted((500, "", {}))
    alive, whole = scripted((200, HELLO, {}))

    meter = Meter()

    async def story(pool: EndpointPool) -> None:
        for _ in range(6):
            await pool.chat(ASK, Caller(5, meter))

    started = time.perf_counter()
    with_pool(story, broken, whole)
    assert (len(dead), len(alive)) == (1, 6)
    assert meter.usage == {"requests": 7, "requests_without_usage": 1, "prompt_tokens": 18, "completion_tokens": 12}
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_refuses_everything_rests_while_another_answers(status: int) -> None:
    refused, refusing = scripted((status, {"error": "no"}, {}))

    async def story(pool: EndpointPool) -> None:
        await asyncio.gather(*(pool.chat(ASK, Caller(5)) for _ in range(6)))

    with_pool(story, refusing, scripted((200, HELLO, {}))[1], max_concurrency=4)
    assert 1 <= len(refused) <= 4


def test_the_least_busy_endpoint_is_asked() -> None:
    counts = [0, 0]

    def slow(at: int) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            counts[at] += 1
            await asyncio.sleep(0.02)
            return web.json_response(HELLO)

        return answer

    async def story(pool: EndpointPool) -> None:
        await asyncio.gather(*(pool.chat(ASK, Caller(20)) for _ in range(60)))

    with_pool(story, slow(0), slow(1), max_concurrency=4)
    assert counts == [30, 30]


def test_an_endpoint_is_never_asked_more_at_once_than_it_allows() -> None:
    running = most = 0

    async def count(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return web.json_response(HELLO)

    async def story(pool: EndpointPool) -> None:
        await asyncio.gather(*(pool.chat(ASK, Caller(30)) for _ in range(64)))

    with_pool(story, count, max_concurrency=3)
    assert most == 3


def test_requests_begin_no_oftener_than_the_pace_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_MINUTE_S", 0.5)
    begun: list[float] = []

    async def note(request: web.Request) -> web.Response:
        begun.append(time.monotonic())
        return web.json_response(HELLO)

    async def story(pool: EndpointPool) -> None:
        await asyncio.gather(*(pool.chat(ASK, Caller(30)) for _ in range(9)))

    with_pool(story, note, requests_per_minute=3)
    begun.sort()
    assert begun[-1] - begun[0] >= 0.95
    assert [sum(at <= b < at + 0.4 for b in begun) for at in begun[::3]] == [3, 3, 3]


def test_an_endpoint_with_room_is_asked_before_one_at_the_end_of_its_pace() -> None:
    asked_one, one = scripted((200, HELLO, {}))
    asked_other, other = scripted((200, HELLO, {}))

    async def story(pool: EndpointPool) -> None:
        for _ in range(10):
            await pool.chat(ASK, Caller(20))

    with_pool(story, one, other, requests_per_minute=5)
    assert (len(asked_one), len(asked_other)) == (5, 5)


def test_a_cancelled_request_gives_its_permit_back() -> None:
    async def hang(request: web.Request) -> web.Response:
        if (await request.json())["messages"] == []:
            await asyncio.sleep(60)
        return web.json_response(HELLO)

    async def story(pool: EndpointPool) -> Completion:
        hung = asyncio.create_task(pool.chat([], Caller(30)))
        await asyncio.sleep(0.1)
        hung.cancel()
        await asyncio.wait([hung])
        return await pool.chat(ASK, Caller(5))

    assert with_pool(story, hang, max_concurrency=1).text == "hello"


def test_calls_and_logprobs_are_read() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    bare = {"id": "2", "function": {"name": "g", "arguments": {"a": 1}}}
    token = {"token": "y", "logprob": -0.5, "top_logprobs": [{"token": "n", "logprob": -1.5}]}
    message = {"content": None, "tool_calls": [call, bare], "reasoning_content": "hm"}
    answer = {"choices": [{"message": message, "finish_reason": "tool_calls", "logprobs": {"content": [token]}}]}
    bodies, handler = scripted((200, answer, {}))
    completion = with_pool(chat(top_logprobs=1, tools=[{"type": "function"}], tool_choice="none"), handler)
    assert [(c.name, json.loads(c.arguments)) for c in completion.calls] == [("f", {"a": 1}), ("g", {"a": 1})]
    assert [(t.token, t.logprob, t.top) for t in completion.logprobs] == [("y", -0.5, {"n": -1.5})]
    assert completion.reasoning == "hm"
    assert completion.message()["tool_calls"][0] == call
    assert (bodies[0]["logprobs"], bodies[0]["top_logprobs"], bodies[0]["tool_choice"]) == (True, 1, "none")


def test_a_continuation_is_read() -> None:
    _, handler = scripted((200, {"choices": [{"text": "a", "finish_reason": "length"}]}, {}))
    completion = with_pool(lambda pool: pool.complete("x", Caller(5)), handler)
    assert (completion.text, completion.is_truncated) == ("a", True)


def test_pictures_are_read_and_paid_for() -> None:
    data = [{"b64_json": base64.b64encode(PNG).decode()}] * 2
    bodies, handler = scripted((200, {"data": data}, {}))

    async def draw(pool: EndpointPool) -> Any:
        return await pool.images("a cat", Caller(5), extra={"n": 2})

    pictures = with_pool(draw, handler, prices=Prices(image_usd=0.5))
    assert pictures.images == (Image(PNG, "image/png"),) * 2
    assert pictures.usage.cost_usd == 1.0
    assert bodies[0] == {"model": "m", "prompt": "a cat", "response_format": "b64_json", "n": 2}


def test_a_picture_at_an_address_is_read_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str | None]()

    async def draw(request: web.Request) -> web.Response:
        if request.method == "GET":
            seen.append(request.headers.get("Authorization"))
            return web.Response(body=PNG, content_type="image/png")
        inline = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
        return web.json_response({"data": [{"url": f"http://{request.host}/made.png"}, {"url": inline}]})

    monkeypatch.setenv("RLF_TEST_KEY", "canary-0123456789")
    bodies = {"extra": {"response_format": None}}
    found = with_pool(lambda pool: pool.images("a cat", Caller(5), **bodies), draw, api_key_env="RLF_TEST_KEY")
    assert found.images == (Image(PNG, "image/png"),) * 2
    assert seen == [None]


@pytest.mark.parametrize(
    "item", [{}, {"b64_json": "%"}, {"b64_json": "AAAA"}, {"url": "http://10.0.0.1/"}, {"url": "file:///x"}, None]
)
def test_what_is_no_picture_is_a_failure(item: Any) -> None:
    _, handler = scripted((200, {"data": [item]}, {}))
    failure = failing(lambda pool: pool.images("a cat", Caller(0.5)), handler)
    assert failure.outcome is Outcome.SERVICE_ERROR
    assert "image" in failure.text


def test_pictures_go_in_as_data() -> None:
    assert image_part(Image(b"abc", "image/png"))["image_url"]["url"] == "data:image/png;base64,YWJj"
    assert text_part("x") == {"type": "text", "text": "x"}


def test_a_check_tells_which_endpoints_cannot_be_used() -> None:
    async def main() -> None:
        async with serving(v1__models=scripted((200, {}, {}))[1]) as listed, serving() as unlisted:
            urls = [listed, unlisted, await closed_port()]
            pool = EndpointPool([EndpointSpec(url=f"{url}/v1", model="m") for url in urls])
            failures = await pool.check(deadline_s=5)
            await pool.close()
        assert failures[:2] == (None, None)
        assert failures[2] is not None and failures[2].outcome is Outcome.UNREACHABLE

    asyncio.run(main())


def test_the_key_is_taken_from_the_environment_and_told_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async def refuse(request: web.Request) -> web.Response:
        seen.append((request.headers["Authorization"], request.headers["X-Team"]))
        return web.json_response({"error": "no"}, status=401)

    monkeypatch.setenv("RLF_TEST_KEY", "canary-0123456789")
    failure = failing(chat(), refuse, api_key_env="RLF_TEST_KEY", headers={"X-Team": "a"})
    assert seen == [("Bearer canary-0123456789", "a")]
    assert "canary" not in str(failure) + repr(EndpointSpec(url="http://h/v1", model="m", api_key_env="RLF_TEST_KEY"))
    monkeypatch.delenv("RLF_TEST_KEY")
    with pytest.raises(RlfError, match="RLF_TEST_KEY is not set"):
        EndpointPool([EndpointSpec(url="http://h/v1", model="m", api_key_env="RLF_TEST_KEY")])


def test_who_waits_for_an_endpoint_asks_no_sooner_than_it_allows_when_it_fails_meanwhile() -> None:
    bodies, refuse = scripted((429, {}, {"Retry-After": "30"}))

    async def story(pool: EndpointPool) -> list[Any]:
        asked = [pool.chat(ASK, Caller(5.0)) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)

    failures = with_pool(story, refuse, max_concurrency=1)
    assert [failure.outcome for failure in failures] == [Outcome.RATE_LIMITED] * 3
    assert len(bodies) == 1


def test_the_address_in_messages_has_no_password(monkeypatch):
    spec = EndpointSpec(url="http://me:hunter2hunter@host:8000/v1", model="m", api_key_env="ABSENT_KEY")
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    assert spec.place == "http://host:8000/v1"
    with pytest.raises(RlfError, match=r"endpoint http://host:8000/v1: the environment variable ABSENT_KEY is not set"):
        spec.request_headers()
