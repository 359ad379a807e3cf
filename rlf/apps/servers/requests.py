"""Requests to an MCP server behind a url: one answer each, within bounds, or what is known of its failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import anyio
import httpx2
from httpcore2 import AsyncHTTP11Connection
from mcp.shared.message import SessionMessage
from pydantic_core import from_json

from rlf.apps.servers.messages import ANSWER, EVENT_END, Cutter, Event, Inbound, MessageEdges, read_event
from rlf.endpoints.attribution import RequestFacts, RequestPhase
from rlf.endpoints.spec import retry_after_s
from rlf.tools.mcp.server import McpServer

EVENTS: Final = "text/event-stream"
_CONNECT_S: Final = 10.0
_KEEPALIVE_S: Final = 4.0
"""Idle connections are dropped before common servers (uvicorn: 5 s) close them under a request."""
_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({307, 308})
"""Those that keep the request as it is; all others would lose it."""
MAX_REPLIES: Final = 64
"""Answers under way to what the server asks; beyond it, it gets none."""
_MAX_ERROR_BYTES: Final = 65_536
_REFUSAL_S: Final = 1.0
"""Time for an error's body: its status has decided by then."""
_MAX_WORDS: Final = 300
_EVENTS_A_TURN: Final = 50
"""Events that are read before everything else on the event loop has its turn."""
_EDGE_BYTES: Final = 200
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol,
                  httpx2.LocalProtocolError, httpx2.ProxyError)  # fmt: skip


class Silence(Exception):
    """A request without a usable answer."""

    def __init__(self, text: str, facts: RequestFacts) -> None:
        super().__init__(text)
        self.text, self.facts = text, facts


def make_client(server: McpServer) -> httpx2.AsyncClient:
    """No bound on connections and reading: the executor bounds how many calls run, and how long."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEEPALIVE_S)
    return httpx2.AsyncClient(
        headers={**server.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        limits=limits,
    )


@contextlib.asynccontextmanager
async def open_answer(
    client: httpx2.AsyncClient, method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> AsyncIterator[httpx2.Response]:
    """An answer of the 2xx range, its body still to come; the connection is closed with the block, unless it was read.

    Raises:
        NoAnswer: there is none, or it broke off within the block.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            response = await _follow(client, method, httpx2.URL(url), headers, body, stack)
            status = response.status_code
            if not 200 <= status < 300:
                raise await _refuse(response)
            if response.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
                text = "the server compresses its answer although it was asked not to"
                raise Silence(text, replace(ANSWER, status=status))
            yield response
        except _UNSENT as fault:
            raise Silence(f"no connection: {_in_words(fault)}", RequestFacts(RequestPhase.NOT_SENT)) from fault
        except httpx2.InvalidURL as fault:
            raise Silence("the address is no URL", RequestFacts(RequestPhase.NOT_SENT)) from fault
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as fault:
            raise Silence(f"the connection broke: {_in_words(fault)}", RequestFacts(RequestPhase.SENT)) from fault


async def _follow(
    client: httpx2.AsyncClient,
    method: str,
    url: httpx2.URL,
    headers: dict[str, str],
    body: bytes | None,
    stack: contextlib.AsyncExitStack,
) -> httpx2.Response:
    """The answer at the end of redirects, which may not leave the host: the headers hold a key."""
    encoded = httpx2.Headers(headers, encoding="utf-8")  # they repeat what the server named: sessions and events
    for _ in range(_MAX_REDIRECTS + 1):
        response = await client.send(client.build_request(method, url, headers=encoded, content=body), stream=True)
        stack.push_async_callback(_close_unclean, response)
        stack.push_async_callback(response.aclose)
        there = _target(url, response) if response.status_code in _REDIRECTS else None
        if there is None:
            return response
        url = there
    raise Silence(f"more than {_MAX_REDIRECTS} redirects", replace(ANSWER, status=response.status_code))


async def _close_unclean(response: httpx2.Response) -> None:
    """Closes a connection on which more has come than its answer: it would be taken for that to the next request.

    httpx2 has no public way from an answer to its connection; these attributes were checked in httpcore2 2.16.
    """
    found: Any = response.stream
    for name in ("_stream", "_httpcore_stream", "_stream", "_connection"):
        found = getattr(found, name, None)
    if isinstance(found, AsyncHTTP11Connection) and found._h11_state.trailing_data[0]:
        await found.aclose()


def _target(here: httpx2.URL, response: httpx2.Response) -> httpx2.URL | None:
    try:
        there = here.join(response.headers["location"])
    except (KeyError, httpx2.InvalidURL, ValueError):
        return None
    is_upgrade = (here.scheme, there.scheme, here.port, there.port) == ("http", "https", None, None)
    is_same = there.host == here.host and ((there.scheme, there.port) == (here.scheme, here.port) or is_upgrade)
    return there if is_same else None


async def _refuse(response: httpx2.Response) -> Silence:
    """What an answer with a status of no success says, the code of a JSON-RPC error in it among that."""
    status = response.status_code
    facts = replace(ANSWER, status=status, pause_s=retry_after_s(response.headers.get("retry-after")))
    text = f"HTTP {status} {response.reason_phrase}".rstrip()
    if 300 <= status < 400:
        return Silence(f"{text}: a redirect that is not followed", facts)
    body: bytes | MessageEdges = b""
    with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError, OSError):  # a TimeoutError is an OSError
        async with asyncio.timeout(_REFUSAL_S):
            body = await body_of(response, _MAX_ERROR_BYTES)
    if isinstance(body, MessageEdges):
        return Silence(text, facts)
    try:
        error = from_json(body)["error"]
        code, words = error["code"], error["message"]
    except (ValueError, TypeError, KeyError, IndexError):
        code, words = None, body.decode("utf-8", "replace").strip()
    words = str(words)[:_MAX_WORDS]
    code = code if type(code) is int else None
    return Silence(f"{text}: {words}" if words else text, replace(facts, code=code))


async def body_of(response: httpx2.Response, max_bytes: int) -> bytes | MessageEdges:
    """The body, or its edges where it is over the bound, of which no more is read than shows that."""
    found = bytearray()
    async for chunk in response.aiter_raw():
        found += chunk
        if len(found) > max_bytes:
            return MessageEdges(bytes(found[:_EDGE_BYTES]), b"", len(found))
    return bytes(found)


async def events_of(response: httpx2.Response) -> AsyncIterator[Event]:
    """The events of an answer's stream. Raises NoAnswer where it breaks off, or is no stream of events."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != EVENTS:
        raise Silence(f"no stream of events, but {kind!r:.60}", replace(ANSWER, status=response.status_code))
    cutter, number = Cutter(EVENT_END), 0
    try:
        async for chunk in response.aiter_raw():
            for block in cutter.feed(chunk):
                number += 1
                if number % _EVENTS_A_TURN == 0:
                    await asyncio.sleep(0)
                yield read_event(block)
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as fault:
        raise Silence(f"the connection broke: {_in_words(fault)}", RequestFacts(RequestPhase.SENT)) from fault


async def pass_on(inbound: Inbound, messages: list[SessionMessage]) -> None:
    """Gives messages to the session, unless it has ended."""
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        for message in messages:
            await inbound.send(message)


def _in_words(fault: BaseException) -> str:
    return str(fault)[:_MAX_WORDS] or type(fault).__name__
