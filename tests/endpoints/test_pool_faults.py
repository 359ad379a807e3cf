"""What a model's server may do to the answers of judges and models: each request is counted at the server."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable

import pytest

from rlf.core import RlfError
from rlf.endpoints.pool import Caller, EndpointPool
from rlf.endpoints.spec import EndpointFailure, EndpointSpec
from rlf.types import Outcome
from tests.endpoints.servers import RawServer, Seen, answer, raw_keeping

KEY = "RLF_TEST_POOL_KEY"
JSON = "Content-Type: application/json"


def said(text: str) -> bytes:
    """The body of a completion."""
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()


def asked(seen: Seen) -> str:
    """The words that a request asks with."""
    return str(json.loads(seen.body)["messages"][0]["content"])


def with_server(
    reply: Callable[[Seen, asyncio.StreamWriter], Awaitable[None]],
    story: Callable[[EndpointPool], Awaitable[None]],
    **keys: object,
) -> RawServer:
    async def main() -> RawServer:
        async with raw_keeping(reply) as (url, raw):
            pool = EndpointPool([EndpointSpec.model_validate({"url": f"{url}/v1", "model": "m", **keys})])
            try:
                await story(pool)
            finally:
                await pool.close()
            return raw

    return asyncio.run(main())


async def ask(pool: EndpointPool, words: str = "x", deadline_s: float = 20.0) -> str:
    return (await pool.chat([{"role": "user", "content": words}], Caller(deadline_s))).text


def test_a_judges_late_second_answer_is_not_the_next_ones() -> None:
    async def twice(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("200 OK", said(asked(seen)), JSON))
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(answer("200 OK", said("stray"), JSON))

    async def story(pool: EndpointPool) -> None:
        for number in range(6):
            assert await ask(pool, str(number)) == str(number)
            await asyncio.sleep(0.03)

    assert len(with_server(twice, story).seen) == 6


@pytest.mark.parametrize("status", ["301 Moved", "307 Moved", "308 Moved"])
def test_a_model_that_moved_is_sent_the_conversation(status: str) -> None:
    async def moved(seen: Seen, writer: asyncio.StreamWriter) -> None:
        is_there = seen.target.startswith("/new")
        writer.write(answer("200 OK", said(asked(seen)), JSON) if is_there else answer(status, b"", "Location: /new/"))

    async def story(pool: EndpointPool) -> None:
        assert await ask(pool, "where are you") == "where are you"

    assert with_server(moved, story).methods == ["POST", "POST"]


def test_a_completion_that_is_cut_within_its_gzip_is_asked_for_again() -> None:
    async def cut_once(seen: Seen, writer: asyncio.StreamWriter) -> None:
        packed = gzip.compress(said("whole " * 100))
        body = packed if len(raw_seen) else packed[: len(packed) // 2]
        raw_seen.append(seen)
        writer.write(answer("200 OK", body, JSON, "Content-Encoding: gzip"))

    raw_seen: list[Seen] = []

    async def story(pool: EndpointPool) -> None:
        assert await ask(pool) == "whole " * 100

    assert len(with_server(cut_once, story).seen) == 2


@pytest.mark.parametrize(
    ("status", "outcome", "count"),
    [
        ("500 Oops", Outcome.SERVICE_ERROR, 4),
        ("401 Unauthorized", Outcome.SERVICE_ERROR, 1),
        ("405 Method Not Allowed", Outcome.SERVICE_ERROR, 1),
        ("400 Bad Request", Outcome.TOOL_ERROR, 1),
    ],
)
def test_a_status_decides_whatever_the_size_of_its_page(status: str, outcome: Outcome, count: int) -> None:
    async def refuse(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(status, b"because " * 100_000))

    async def story(pool: EndpointPool) -> None:
        with pytest.raises(EndpointFailure) as caught:
            await ask(pool)
        assert caught.value.outcome is outcome
        assert len(caught.value.body) <= 65_536

    assert len(with_server(refuse, story).seen) == count


def test_an_answer_that_is_only_promised_is_no_answer() -> None:
    async def accept(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("202 Accepted"))

    async def story(pool: EndpointPool) -> None:
        with pytest.raises(EndpointFailure) as caught:
            await ask(pool)
        assert caught.value.outcome is Outcome.SERVICE_ERROR

    with_server(accept, story)


def test_a_key_from_a_file_is_sent_without_its_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    async def greet(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("200 OK", said(seen.headers["authorization"] + seen.headers["x-shop"]), JSON))

    async def story(pool: EndpointPool) -> None:
        assert await ask(pool) == "Bearer the-keyher"

    monkeypatch.setenv(KEY, "the-key\r\n")
    with_server(greet, story, api_key_env=KEY, headers={"X-Shop": "her\n"})
    for wrong in ("two\nkeys", "nul\x01", " \n"):
        monkeypatch.setenv(KEY, wrong)
        with pytest.raises(RlfError, match=KEY) as caught:
            EndpointPool([EndpointSpec(url="http://h/v1", model="m", api_key_env=KEY)])
        assert wrong not in str(caught.value)
