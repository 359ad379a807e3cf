"""One request: what servers may do to it, and how it ends."""

from __future__ import annotations

import asyncio
import gzip
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from rlf.endpoints.guard import AddressGuard, trusted_hosts
from rlf.endpoints.http import HttpClient, HttpRequest, HttpResponse
from rlf.endpoints.spec import EndpointFailure, Redirects, retry_after_s
from rlf.types import Outcome
from tests.endpoints.servers import closed_port, raw_serving, serving

MAX_BYTES = 100_000


async def ask(url: str, method: str = "GET", deadline_s: float = 5.0, **keys: Any) -> HttpResponse:
    """One request by a client that trusts the host of the URL."""
    settings = {key: keys.pop(key) for key in ("redirects", "resolver") if key in keys}
    trusted = trusted_hosts(keys.pop("declared", url), keys.pop("also", ()))
    client = HttpClient(AddressGuard(trusted), max_connections=8, max_bytes=MAX_BYTES, **settings)
    try:
        return await client.send(HttpRequest(method, url, **keys), deadline_s=deadline_s)
    finally:
        await client.close()


async def failing(url: str, method: str = "GET", deadline_s: float = 5.0, **keys: Any) -> EndpointFailure:
    with pytest.raises(EndpointFailure) as caught:
        await ask(url, method, deadline_s, **keys)
    return caught.value


def test_an_answer_is_given_back_decompressed_with_its_type() -> None:
    async def packed(request: web.Request) -> web.Response:
        response = web.json_response({"é": 1})
        response.enable_compression()
        return response

    async def main() -> None:
        async with serving(packed=packed) as url:
            response = await ask(f"{url}/packed")
        assert (response.body, response.content_type, response.charset) == (
            b'{"\\u00e9": 1}',
            "application/json",
            "utf-8",
        )

    asyncio.run(main())


def test_a_refused_connection_and_an_unknown_name_are_unreachable_unless_the_caller_chose_the_host() -> None:
    async def main() -> None:
        refused = await failing(f"{await closed_port()}/path?key=canary", "POST")
        unknown = await failing("http://no-such-host.invalid/path?key=canary", "POST")
        assert (await failing("http://no-such-host.invalid/", declared="http://h")).outcome is Outcome.TOOL_ERROR
        assert refused.outcome is unknown.outcome is Outcome.UNREACHABLE
        assert "canary" not in refused.text + unknown.text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "pause_s"),
    [
        (404, {}, Outcome.TOOL_ERROR, None),
        (400, {}, Outcome.TOOL_ERROR, None),
        (422, {}, Outcome.TOOL_ERROR, None),
        (401, {}, Outcome.SERVICE_ERROR, None),
        (403, {}, Outcome.SERVICE_ERROR, None),
        (500, {}, Outcome.SERVICE_ERROR, None),
        (502, {}, Outcome.SERVICE_ERROR, None),
        (503, {}, Outcome.SERVICE_ERROR, None),
        (504, {}, Outcome.SERVICE_ERROR, None),
        (503, {"Retry-After": "7"}, Outcome.RATE_LIMITED, 7.0),
        (429, {}, Outcome.RATE_LIMITED, None),
        (429, {"Retry-After": "31536000"}, Outcome.RATE_LIMITED, 31_536_000.0),
        (429, {"Retry-After": "soon"}, Outcome.RATE_LIMITED, None),
        (304, {}, Outcome.SERVICE_ERROR, None),
    ],
)
def test_a_status_that_is_no_success_is_a_typed_failure(
    status: int, headers: dict[str, str], outcome: Outcome, pause_s: float | None
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers, text="" if status == 304 else "because " + "x" * 5_000)

    async def main() -> None:
        async with serving(refuse=refuse) as url:
            failure = await failing(f"{url}/refuse")
        assert (failure.outcome, failure.status, failure.retry_after_s) == (outcome, status, pause_s)
        assert failure.text.startswith(f"HTTP {status} ")
        assert len(failure.text) < 400

    asyncio.run(main())


def test_a_date_to_retry_after_is_the_time_until_then() -> None:
    then = datetime.now(UTC) + timedelta(seconds=60)
    found = retry_after_s(format_datetime(then))
    assert found is not None and 57 < found <= 60
    assert retry_after_s(format_datetime(then - timedelta(hours=1))) == 0
    assert retry_after_s("-5") is None


def test_a_post_that_times_out_is_delivered_once_and_its_outcome_unknown() -> None:
    delivered = []

    async def hang(request: web.Request) -> web.Response:
        delivered.append(await request.read())
        await asyncio.sleep(60)
        return web.Response()

    async def main() -> None:
        async with serving(hang=hang) as url:
            unknown = await failing(f"{url}/hang", "POST", 0.3, body=b"1")
            late = await failing(f"{url}/hang", "POST", 0.3, body=b"2", repeatable=True)
            got = await failing(f"{url}/hang", "GET", 0.3)
        assert (unknown.outcome, late.outcome, got.outcome) == (Outcome.UNKNOWN, Outcome.TIMEOUT, Outcome.TIMEOUT)
        assert delivered == [b"1", b"2", b""]

    asyncio.run(main())


def test_a_request_that_never_had_a_connection_was_not_delivered() -> None:
    delivered, has_come = list[bytes](), asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        delivered.append(await request.read())
        has_come.set()
        await asyncio.sleep(60)
        return web.Response()

    async def main() -> None:
        async with serving(hang=hang) as url:
            client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=1, max_bytes=100)
            first, second = (HttpRequest("POST", f"{url}/hang", body=body) for body in (b"first", b"second"))
            under_way = asyncio.create_task(client.send(first, deadline_s=60))
            await has_come.wait()
            for deadline_s in (0.2, 0.0):
                with pytest.raises(EndpointFailure, match="no connection within") as caught:
                    await client.send(second, deadline_s=deadline_s)
                assert caught.value.outcome is Outcome.UNREACHABLE
            under_way.cancel()
            await asyncio.wait([under_way])
            await client.close()
        assert delivered == [b"first"]

    asyncio.run(main())


def test_what_was_sent_on_may_have_been_delivered_and_its_time_is_that_of_all_hops() -> None:
    async def on(request: web.Request) -> web.Response:
        await asyncio.sleep(0.3)
        raise web.HTTPSeeOther(request.query["to"])

    async def main() -> None:
        nobody = await closed_port()
        async with serving(on=on) as url:
            lost = await failing(f"{url}/on?to={nobody}/", "POST", redirects=Redirects.ANY, also=[nobody[7:]])
            started = time.perf_counter()
            late = await failing(f"{url}/on?to=/on?to=/on?to=/on?to=/", "POST", 0.5)
            assert time.perf_counter() - started < 0.85
        assert lost.outcome is late.outcome is Outcome.UNKNOWN
        assert "no answer within 0.5 s" in late.text

    asyncio.run(main())


async def slow_drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def slow_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Header: x\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        await writer.drain()


BOMB = gzip.compress(bytes(50_000_000), 1)


async def bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB)
    await writer.drain()
    await asyncio.sleep(60)


async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    await writer.drain()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    ("handler", "outcome", "posted"),
    [
        (slow_drip, Outcome.TIMEOUT, Outcome.UNKNOWN),
        (slow_head, Outcome.TIMEOUT, Outcome.UNKNOWN),
        (endless, Outcome.OUTPUT_REJECTED, Outcome.OUTPUT_REJECTED),
        (bomb, Outcome.OUTPUT_REJECTED, Outcome.OUTPUT_REJECTED),
        (cut, Outcome.UNREACHABLE, Outcome.UNKNOWN),
        (reset, Outcome.UNREACHABLE, Outcome.UNKNOWN),
        (no_http, Outcome.UNREACHABLE, Outcome.UNKNOWN),
    ],
)
def test_a_server_that_misbehaves_ends_a_request_typed_and_in_time(
    handler: Any, outcome: Outcome, posted: Outcome
) -> None:
    async def main() -> None:
        async with raw_serving(handler) as url:
            started = time.perf_counter()
            assert (await failing(url, "GET", 0.5)).outcome is outcome
            assert (await failing(url, "POST", 0.5, body=b"{}")).outcome is posted
            assert time.perf_counter() - started < 4

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"hello", "not valid HTTP: Bad status line"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", "not valid HTTP: Invalid character in Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "ended before its declared end"),
    ],
)
def test_what_is_wrong_with_an_answer_of_http_is_said(reply: bytes, words: str) -> None:
    async def give(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await writer.drain()

    async def main() -> None:
        async with raw_serving(give) as url:
            assert (await failing(url, "GET", 5)).text == f"the answer {'is ' * ('not' in words)}{words}"

    asyncio.run(main())


def test_a_redirect_is_followed_within_its_host_and_refused_beyond_it_or_not_at_all() -> None:
    async def main() -> None:
        async def elsewhere(request: web.Request) -> web.Response:
            raise web.HTTPFound(request.query.get("to", "/elsewhere"))

        async def here(request: web.Request) -> web.Response:
            return web.Response(text=f"{request.method} {request.headers.get('X-Key')}")

        async with serving(here=here) as other, serving(elsewhere=elsewhere, here=here) as url:
            headers = {"X-Key": "canary"}
            response = await ask(f"{url}/elsewhere?to=/here", "POST", headers=headers, body=b"x")
            assert response.body == b"GET canary"
            refused = await failing(f"{url}/elsewhere?to=/here", redirects=Redirects.NONE)
            assert (refused.outcome, refused.status) == (Outcome.SERVICE_ERROR, 302)
            assert (await failing(f"{url}/elsewhere?to={other}/here")).status == 302
            private = await failing(f"{url}/elsewhere?to={other}/here", redirects=Redirects.ANY)
            assert "private address" in private.text
            circle = await failing(f"{url}/elsewhere?to=/elsewhere?to=/elsewhere", redirects=Redirects.ANY)
            assert circle.outcome is Outcome.SERVICE_ERROR
        named = trusted_hosts(url, [other.removeprefix("http://")])
        assert len(named) == 2

    asyncio.run(main())


def test_declared_headers_do_not_follow_a_redirect_to_another_host() -> None:
    async def main() -> None:
        async def here(request: web.Request) -> web.Response:
            return web.Response(text=str(request.headers.get("X-Key")))

        async with serving(here=here) as other:

            async def elsewhere(request: web.Request) -> web.Response:
                raise web.HTTPFound(f"{other}/here")

            async with serving(elsewhere=elsewhere) as url:
                trusted = trusted_hosts(url, [other.removeprefix("http://")])
                client = HttpClient(AddressGuard(trusted), max_connections=1, max_bytes=100, redirects=Redirects.ANY)
                request = HttpRequest("GET", f"{url}/elsewhere", {"X-Key": "canary"})
                response = await client.send(request, deadline_s=5)
                await client.close()
        assert response.body == b"None"

    asyncio.run(main())


def test_no_more_connections_are_opened_than_allowed() -> None:
    running = most = 0

    async def count(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return web.Response()

    async def main() -> None:
        async with serving(count=count) as url:
            client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=7, max_bytes=100)
            request = HttpRequest("GET", f"{url}/count")
            await asyncio.gather(*(client.send(request, deadline_s=30) for _ in range(200)))
            await client.close()

    asyncio.run(main())
    assert most == 7
