"""Whose failure an answer is: servers that say something unexpected, and how many requests reach them."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Mapping
from typing import Any

import pytest

from rlf.endpoints import http
from rlf.endpoints.guard import AddressGuard, trusted_hosts
from rlf.endpoints.http import HttpClient, HttpRequest, HttpResponse
from rlf.endpoints.spec import EndpointFailure, Redirects
from rlf.types import Outcome
from tests.endpoints.servers import RawServer, Seen, answer, closed_port, raw_keeping

MAX_BYTES = 20_000
TEXT = b"The town of Ambry lies at the river Sill. " * 50


async def send(
    url: str, method: str = "GET", *, body: bytes | None = None, headers: Mapping[str, str] = {}, **keys: Any
) -> HttpResponse | EndpointFailure:
    """The answer or the failure of one request by a client that trusts the host."""
    keys = {"max_connections": 8, "max_bytes": MAX_BYTES} | keys
    deadline_s = keys.pop("deadline_s", 20.0)
    client = HttpClient(AddressGuard(trusted_hosts(url)), **keys)
    try:
        return await client.send(HttpRequest(method, url, headers, body), deadline_s=deadline_s)
    except EndpointFailure as failure:
        return failure
    finally:
        await client.close()


def sent(reply: bytes, method: str = "GET", **keys: Any) -> tuple[HttpResponse | EndpointFailure, RawServer]:
    """How a request ends that is answered with these bytes, and the server that saw it."""

    async def always(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)

    async def main() -> tuple[HttpResponse | EndpointFailure, RawServer]:
        async with raw_keeping(always) as (url, raw):
            return await send(f"{url}/things", method, **keys), raw

    return asyncio.run(main())


def outcome_of_reply(reply: bytes, method: str = "GET", **keys: Any) -> Outcome:
    found, raw = sent(reply, method, **keys)
    assert len(raw.seen) == 1
    return found.outcome if isinstance(found, EndpointFailure) else Outcome.OK


LARGE = b"x" * (3 * MAX_BYTES)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("500 Oops", Outcome.SERVICE_ERROR),
        ("502 Bad Gateway", Outcome.SERVICE_ERROR),
        ("401 Unauthorized", Outcome.SERVICE_ERROR),
        ("405 Method Not Allowed", Outcome.SERVICE_ERROR),
        ("429 Too Many Requests", Outcome.RATE_LIMITED),
        ("404 Not Found", Outcome.TOOL_ERROR),
        ("302 Found", Outcome.SERVICE_ERROR),
        ("200 OK", Outcome.OUTPUT_REJECTED),
    ],
)
def test_a_status_of_an_error_decides_whatever_the_size_of_its_body(method: str, status: str, outcome: Outcome) -> None:
    assert outcome_of_reply(answer(status, LARGE), method) is outcome


@pytest.mark.parametrize("status", ["500 Oops", "404 Not Found", "429 Too Many Requests"])
@pytest.mark.parametrize(
    "reply",
    [(b"half", [], 1000), (b"not gzip", ["Content-Encoding: gzip"], None), (b"x", ["Content-Encoding: br"], None)],
)
def test_a_status_of_an_error_decides_also_where_its_body_cannot_be_read(status: str, reply: Any) -> None:
    body, headers, length = reply

    async def then_close(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(status, body, "Retry-After: 7", *headers, length=length))
        writer.write_eof()

    async def main() -> EndpointFailure:
        async with raw_keeping(then_close) as (url, _):
            found = await send(url, "POST", body=b"{}")
            assert isinstance(found, EndpointFailure)
            return found

    failure = asyncio.run(main())
    assert (failure.status, failure.retry_after_s) == (int(status[:3]), 7.0)
    assert failure.outcome is not Outcome.UNKNOWN


@pytest.mark.parametrize("deadline_s", [0.5, 60.0])
def test_a_status_of_an_error_decides_also_where_its_body_never_ends(deadline_s: float) -> None:
    """At once, so that there is time for another attempt."""
    started = time.monotonic()
    found, _ = sent(answer("500 Oops", b"because", length=1000), "POST", body=b"{}", deadline_s=deadline_s)
    assert isinstance(found, EndpointFailure)
    assert (found.outcome, found.status) == (Outcome.SERVICE_ERROR, 500)
    assert deadline_s < 1 or found.text == "HTTP 500 Oops: because"
    assert time.monotonic() - started < 30


PACKED = gzip.compress(TEXT)
RAW_DEFLATE = zlib.compressobj(wbits=-15)
RAW = RAW_DEFLATE.compress(TEXT) + RAW_DEFLATE.flush()
CODED = {
    "gzip": PACKED,
    "x-gzip": PACKED,
    "GZIP": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "deflate": zlib.compress(TEXT),
    "Deflate": RAW,
    "identity": TEXT,
}


@pytest.mark.parametrize("coding", CODED)
def test_an_answer_that_is_packed_is_unpacked(coding: str) -> None:
    found, raw = sent(answer("200 OK", CODED[coding], f"Content-Encoding: {coding}"))
    assert isinstance(found, HttpResponse) and found.body == TEXT
    assert raw.seen[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate"])
@pytest.mark.parametrize(("method", "outcome"), [("GET", Outcome.UNREACHABLE), ("POST", Outcome.UNKNOWN)])
@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_whose_packed_data_is_cut_is_no_answer(
    coding: str, method: str, outcome: Outcome, chunked: bool
) -> None:
    for left_out in (1, len(CODED[coding]) // 2, len(CODED[coding]) - 1):
        body = CODED[coding][:-left_out]
        if chunked:
            head = (
                f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: {coding}\r\n\r\n{len(body):x}\r\n"
            )
            reply = head.encode() + body + b"\r\n0\r\n\r\n"
        else:
            reply = answer("200 OK", body, f"Content-Encoding: {coding}")
        assert outcome_of_reply(reply, method) is outcome


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "aes128gcm"])
def test_an_answer_in_a_coding_that_was_not_asked_for_is_the_services_failure(coding: str) -> None:
    assert outcome_of_reply(answer("200 OK", TEXT, f"Content-Encoding: {coding}")) is Outcome.SERVICE_ERROR


BAD_LOCATIONS = [
    "http://[::1",
    "http://host:99999/",
    "http://h:port/",
    "ftp://127.0.0.1/x",
    "javascript:alert(1)",
    "http://",
    "//",
    "http://10.0.0.1/",
    "http://user:pw@169.254.169.254/latest",
]


@pytest.mark.parametrize("location", BAD_LOCATIONS)
@pytest.mark.parametrize("redirects", list(Redirects))
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_that_is_not_followed_is_the_services_failure(
    location: str, redirects: Redirects, method: str
) -> None:
    line = f"HTTP/1.1 307 Moved\r\nContent-Length: 0\r\nLocation: {location}\r\n\r\n"
    found, raw = sent(line.encode(errors="surrogateescape"), method, redirects=redirects)
    assert isinstance(found, EndpointFailure)
    assert (found.outcome, found.status, len(raw.seen)) == (Outcome.SERVICE_ERROR, 307, 1)


@pytest.mark.parametrize(("place", "headers"), [("http", {}), ("https", {"X-Key": "canary"})])
def test_declared_headers_do_not_follow_a_redirect_to_plain_http(place: str, headers: dict[str, str]) -> None:
    """At one port, where host and port alone tell nothing."""
    client = HttpClient(AddressGuard(frozenset()), max_connections=1, max_bytes=9, redirects=Redirects.ANY)
    request = HttpRequest("GET", "https://api.example:8443/a", headers={"X-Key": "canary"})
    course = http._Course(request, 1.0, hop=request)
    client._follow_redirect(course, http._Redirect(307, f"{place}://api.example:8443/b"))
    assert (course.hop.url, course.hop.headers) == (f"{place}://api.example:8443/b", headers)


def test_a_redirect_to_a_host_that_is_not_there_is_infrastructure() -> None:
    async def main() -> None:
        nobody = await closed_port()

        async def away(seen: Seen, writer: asyncio.StreamWriter) -> None:
            writer.write(answer("307 Moved", b"", f"Location: {nobody}/"))

        async with raw_keeping(away) as (url, _):
            client = HttpClient(
                AddressGuard(trusted_hosts(url, [nobody[7:]])), max_connections=1, max_bytes=9, redirects=Redirects.ANY
            )
            with pytest.raises(EndpointFailure) as caught:
                await client.send(HttpRequest("GET", url), deadline_s=5)
            await client.close()
        assert caught.value.outcome.is_infrastructure

    asyncio.run(main())


LOGINS = [
    "/login",
    "/login?next=/things",
    "/accounts/sign-in/",
    "/auth/SignIn",
    "/sso/saml",
    "/oauth2/authorize?x=1",
    "/login.aspx",
]


@pytest.mark.parametrize("location", LOGINS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_to_a_page_where_one_logs_in_is_a_refused_key(location: str, method: str) -> None:
    found, raw = sent(answer("302 Found", b"", f"Location: {location}"), method)
    assert isinstance(found, EndpointFailure)
    assert (found.outcome, len(raw.seen)) == (Outcome.SERVICE_ERROR, 1)
    assert "log in" in found.text


@pytest.mark.parametrize(
    ("status", "location"),
    [
        ("302 Found", "/catalogin"),
        ("302 Found", "/docs/how-to-log-in"),
        ("301 Moved", "/wiki/Login"),
        ("308 Moved", "/sso"),
    ],
)
def test_a_redirect_to_a_page_about_logging_in_is_followed(status: str, location: str) -> None:
    async def reply(seen: Seen, writer: asyncio.StreamWriter) -> None:
        is_first = seen.target == "/wiki/Log%20in"
        writer.write(answer(status, b"", f"Location: {location}") if is_first else answer("200 OK", b"found"))

    async def main() -> None:
        async with raw_keeping(reply) as (url, raw):
            found = await send(f"{url}/wiki/Log%20in")
            assert isinstance(found, HttpResponse) and found.body == b"found"
            assert raw.seen[1].target == location

    asyncio.run(main())


def moved(status: str, location: str = "/there", first: str = "/here") -> tuple[str, RawServer]:
    async def reply(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(
            answer("200 OK", b"found") if seen.target != first else answer(status, b"", f"Location: {location}")
        )

    async def main() -> tuple[str, RawServer]:
        async with raw_keeping(reply) as (url, raw):
            found = await send(
                url + first, "POST", body=b'{"query": "x"}', headers={"Content-Type": "application/json"}
            )
            assert isinstance(found, HttpResponse), found
            return found.body.decode(), raw

    return asyncio.run(main())


@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary", "308 Permanent"])
def test_a_post_that_moved_keeps_its_arguments(status: str) -> None:
    _, raw = moved(status)
    assert [(seen.method, seen.target, seen.body) for seen in raw.seen] == [
        ("POST", "/here", b'{"query": "x"}'),
        ("POST", "/there", b'{"query": "x"}'),
    ]


def test_a_post_keeps_its_arguments_on_the_way_to_the_same_place() -> None:
    _, raw = moved("302 Found", "/here/")
    assert raw.methods == ["POST", "POST"]
    assert raw.seen[1].body == b'{"query": "x"}'


@pytest.mark.parametrize("status", ["302 Found", "303 See Other"])
def test_a_post_whose_result_lies_elsewhere_is_not_sent_twice(status: str) -> None:
    _, raw = moved(status, "/results/7")
    assert raw.methods == ["POST", "GET"]
    assert raw.seen[1].body == b"" and "content-type" not in raw.seen[1].headers


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST"])
def test_a_request_is_sent_once_also_on_a_connection_that_breaks(method: str) -> None:
    """aiohttp's own second attempt would count neither as one of `retries` nor for the rate limit."""

    async def break_second(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/second":
            writer.transport.abort()
        else:
            writer.write(answer("200 OK", b"" if seen.method == "HEAD" else b"fine"))

    async def main() -> None:
        async with raw_keeping(break_second) as (url, raw):
            client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=1, max_bytes=100)
            await client.send(HttpRequest(method, f"{url}/first"), deadline_s=5)
            with pytest.raises(EndpointFailure) as caught:
                await client.send(HttpRequest(method, f"{url}/second"), deadline_s=5)
            await client.close()
        assert caught.value.outcome.is_infrastructure
        assert [seen.target for seen in raw.seen] == ["/first", "/second"]
        assert raw.num_connections == 1

    asyncio.run(main())


STRAY = answer("200 OK", b"stray")
STRAYS = [STRAY, b"HTTP/1.1 200 OK\r\n", b"\r\n", STRAY * 3, answer("100 Continue")]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("pause_s", [0.0, 0.02])
@pytest.mark.parametrize("is_processed", [False, True])
def test_a_connection_with_unread_bytes_is_not_used_again(
    method: str, stray: bytes, pause_s: float, is_processed: bool
) -> None:
    async def reply(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("200 OK", seen.target.encode()))
        await writer.drain()
        await asyncio.sleep(pause_s)
        writer.write(stray)
        await writer.drain()
        written.set()

    written = asyncio.Event()

    async def main() -> None:
        async with raw_keeping(reply) as (url, raw):
            client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=1, max_bytes=1000)
            for number in range(4):
                written.clear()
                found = await client.send(HttpRequest(method, f"{url}/{number}"), deadline_s=5)
                assert found.body == f"/{number}".encode()
                await written.wait()
                if is_processed:
                    await asyncio.sleep(0.01)
            await client.close()
        assert len(raw.seen) == 4

    asyncio.run(main())


def test_a_clean_connection_is_used_again() -> None:
    async def reply(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("404 Not Found" if seen.target == "/3" else "200 OK", b"fine"))

    async def main() -> None:
        async with raw_keeping(reply) as (url, raw):
            client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=1, max_bytes=1000)
            for number in range(12):
                try:
                    await client.send(HttpRequest("GET", f"{url}/{number}"), deadline_s=5)
                except EndpointFailure as failure:
                    assert (number, failure.status) == (3, 404)
            await client.close()
        assert (len(raw.seen), raw.num_connections) == (12, 1)

    asyncio.run(main())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_connection_that_the_server_has_closed_is_not_used_again(method: str) -> None:
    async def reply(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("200 OK", b"fine"))
        await writer.drain()
        writer.close()
        closed.set()

    closed = asyncio.Event()

    async def main() -> None:
        async with raw_keeping(reply) as (url, raw):
            client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=1, max_bytes=1000)
            for _ in range(12):
                closed.clear()
                assert (await client.send(HttpRequest(method, url), deadline_s=5)).body == b"fine"
                await closed.wait()
            await client.close()
        assert (len(raw.seen), raw.num_connections) == (12, 12)

    asyncio.run(main())


def test_a_header_that_cannot_be_sent_is_no_fault_of_the_arguments() -> None:
    found, raw = sent(answer("200 OK"), headers={"Authorization": "Bearer a\nb"})
    assert isinstance(found, EndpointFailure)
    assert (found.outcome, len(raw.seen)) == (Outcome.SERVICE_ERROR, 0)
    assert "header" in found.text and "Bearer" not in found.text


def test_answers_that_only_announce_one_are_passed_over() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    found, raw = sent(b"HTTP/1.1 100 Continue\r\n\r\n" + hints * 2 + answer("200 OK", b"fine"))
    assert isinstance(found, HttpResponse)
    assert (found.body, len(raw.seen)) == (b"fine", 1)


def test_the_length_of_a_body_is_its_own_whatever_the_headers_say() -> None:
    headers = {"content-length": "3", "Transfer-Encoding": "chunked", "X-Mine": "yes"}
    found, raw = sent(answer("200 OK", b"fine"), "POST", body=b"all of it", headers=headers)
    assert isinstance(found, HttpResponse)
    (seen,) = raw.seen
    assert (seen.body, seen.headers["content-length"], seen.headers["x-mine"]) == (b"all of it", "9", "yes")
    assert "transfer-encoding" not in seen.headers


def test_a_connection_is_not_used_again_while_its_request_is_not_all_sent() -> None:
    """The rest of it would be read as the next request."""
    ended: list[asyncio.Event] = []

    async def answer_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(over := asyncio.Event())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("200 OK", b"fine"))
        await asyncio.sleep(0.2)  # while it reads no further
        writer.transport.abort()
        over.set()

    async def main() -> None:
        async with await asyncio.start_server(answer_at_once, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=1, max_bytes=100)
            for _ in range(2):
                request = HttpRequest("POST", url, body=bytes(20_000_000))
                assert (await client.send(request, deadline_s=5)).body == b"fine"
            await client.close()
            for each in ended:
                await each.wait()

    asyncio.run(main())
    assert len(ended) == 2
