"""Servers on loopback: aiohttp applications, and raw sockets that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RawHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(**handlers: Handler) -> AsyncIterator[str]:
    """An application with one handler per path of one part, for any method; `_` stands for `/` and below."""
    app = web.Application()
    for name, handler in handlers.items():
        app.router.add_route("*", "/{tail:.*}" if name == "_" else f"/{name.replace('__', '/')}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_serving(handler: RawHandler) -> AsyncIterator[str]:
    """A socket that reads a request's head and hands over what follows; the connection is closed afterwards."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def closed_port() -> str:
    """The address of a port that nothing listens on."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return f"http://127.0.0.1:{port}"


class Seen(NamedTuple):
    """A request as it came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class RawServer:
    """Keeps its connections open, and writes whatever bytes it is given; every request that reaches it is in `seen`."""

    def __init__(self, reply: Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self._reply = reply
        self.seen: list[Seen] = []
        self.num_connections = 0

    @property
    def methods(self) -> list[str]:
        """Of the requests that came."""
        return [seen.method for seen in self.seen]

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.rstrip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = first.split(" ")
                self.seen.append(Seen(method, target, headers, body))
                await self._reply(self.seen[-1], writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw_keeping(
    reply: Callable[[Seen, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[str, RawServer]]:
    """The address of a RawServer, and the server."""
    raw = RawServer(reply)
    server = await asyncio.start_server(raw, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", raw
    finally:
        server.close()


def answer(status: str, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    """An HTTP answer as bytes; `length` is what it claims of its body."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
