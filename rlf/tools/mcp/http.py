"""An MCP server behind a url: streamable HTTP, or the older server-sent events, with a bound on every answer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any, Final

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from rlf.tools.mcp.server import McpServer, Transport
from rlf.tools.mcp.unheard import HeardEvents
from rlf.tools.mcp.words import MAX_MESSAGE_BYTES, too_large

_CONNECT_S: Final = 10.0
_EVENT_STREAM = "text/event-stream"


@contextlib.asynccontextmanager
async def http_streams(server: McpServer, on_refusal: Callable[[int], None]) -> AsyncIterator[tuple[Any, Any]]:
    """Reaches the server; its transport ends with an exception when a request cannot be sent.

    Args:
        on_refusal: takes each status of 4xx and 5xx, which the SDK does not report.
    """
    assert server.url is not None, "a command has no url"
    if server.transport is Transport.SSE:
        async with sse_client(
            server.url, httpx_client_factory=lambda *_, **__: _make_client(server, on_refusal)
        ) as streams:
            yield streams
        return
    async with (
        _make_client(server, on_refusal) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


def _make_client(server: McpServer, on_refusal: Callable[[int], None]) -> httpx2.AsyncClient:
    """No bound on connections and reading: the executor bounds how many calls run, and how long."""
    return httpx2.AsyncClient(
        headers={**server.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        transport=_Bounded(httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None)), on_refusal),
    )


class _Bounded(httpx2.AsyncBaseTransport):
    """A transport that stops reading an answer over the bound, and refuses a compressed one, whose size is unknown."""

    def __init__(self, inner: httpx2.AsyncHTTPTransport, on_refusal: Callable[[int], None]) -> None:
        self._inner = inner
        self._on_refusal = on_refusal

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.status_code >= 400:
            self._on_refusal(response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the server compresses although it was asked not to", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream), "an answer without an asynchronous stream"
        is_events = response.headers.get("content-type", "").startswith(_EVENT_STREAM)
        response.stream = _Stream(response.stream, _pass_heard if is_events else _pass_bounded)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Stream(httpx2.AsyncByteStream):
    """An answer's bytes after a filter."""

    def __init__(
        self, inner: httpx2.AsyncByteStream, passed: Callable[[AsyncIterable[bytes]], AsyncIterator[bytes]]
    ) -> None:
        self._inner, self._passed = inner, passed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._passed(self._inner)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _pass_heard(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Events, on which the SDK has a bound of its own."""
    events = HeardEvents()
    async for chunk in chunks:
        if heard := events.feed(chunk):
            yield heard
    if rest := events.end():
        yield rest


async def _pass_bounded(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    size_bytes = 0
    async for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > MAX_MESSAGE_BYTES:
            raise httpx2.StreamError(too_large())  # what the SDK turns into an error of this one request
        yield chunk
