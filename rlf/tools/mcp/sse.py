"""An MCP server behind a url as servers of 2024 speak it: one stream of events with every answer, and posts to it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCRequest

from rlf.tools.mcp.http import Streams
from rlf.tools.mcp.messages import ANSWER, Outbox, Oversized, Waiting
from rlf.tools.mcp.pulse import Pulse
from rlf.tools.mcp.server import McpServer
from rlf.tools.mcp.web import EVENTS, MAX_REPLIES, Refused, events_of, make_client, open_answer, pass_on


@contextlib.asynccontextmanager
async def sse_streams(
    server: McpServer, pulse: Pulse, *, on_refusal: Callable[[int], None], on_end: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Reaches the server; `on_end` takes the reason when its stream ends. Raises Refused where it gives none."""
    assert server.url is not None, "a command has no url"
    inbound, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    write_stream, outbound = anyio.create_memory_object_stream[SessionMessage](math.inf)
    waiting = Waiting(pulse.hear)
    async with make_client(server) as client:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        reader = asyncio.create_task(_read_stream(client, server.url, inbound, waiting, address, on_end))
        sender: asyncio.Task[None] | None = None
        try:
            try:
                sender = asyncio.create_task(
                    _send_all(client, await asyncio.shield(address), outbound, inbound, waiting)
                )
            except Refused as refused:
                if refused.facts.status is not None and refused.facts.status >= 400:
                    on_refusal(refused.facts.status)
                raise
            yield read_stream, Outbox(write_stream)
        finally:
            for task in (reader, sender):
                if task is not None:
                    task.cancel()
            for stream in (inbound, read_stream, write_stream, outbound):
                stream.close()


async def _read_stream(
    client: httpx2.AsyncClient,
    url: str,
    inbound: MemoryObjectSendStream[SessionMessage | Exception],
    waiting: Waiting,
    address: asyncio.Future[str],
    on_end: Callable[[str], None],
) -> None:
    why = "ended its stream"
    try:
        async with open_answer(client, "GET", url, {"Accept": EVENTS}) as response:
            async for event in events_of(response):
                if event.name == "endpoint" and not isinstance(event.data, Oversized) and not address.done():
                    address.set_result(_address_in(httpx2.URL(url), event.data))
                elif event.name == "message" and event.data:
                    await pass_on(inbound, waiting.read(event.data) or [])
    except Refused as refused:
        why = refused.text
        if not address.done():
            address.set_exception(refused)
            return
    if not address.done():
        address.set_exception(Refused("its stream names no address for messages", ANSWER))
        return
    on_end(why)
    inbound.close()


def _address_in(url: httpx2.URL, data: bytes) -> str:
    """Where messages go, which is on the same host: they hold a key. Raises Refused."""
    try:
        there = url.join(data.decode())
    except (ValueError, httpx2.InvalidURL) as fault:
        raise Refused("the server's address for messages is no URL", ANSWER) from fault
    if (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
        raise Refused(f"the server's address for messages is on another host, {there.host}", ANSWER)
    return str(there)


async def _send_all(
    client: httpx2.AsyncClient,
    url: str,
    outbound: MemoryObjectReceiveStream[SessionMessage],
    inbound: MemoryObjectSendStream[SessionMessage | Exception],
    waiting: Waiting,
) -> None:
    """Posts each message by itself, so that one that hangs holds up no other."""
    async with contextlib.AsyncExitStack() as stack:
        posts = set[asyncio.Task[None]]()
        stack.callback(lambda: [post.cancel() for post in posts])
        async for item in outbound:
            if not isinstance(item.message, JSONRPCRequest) and len(posts) > MAX_REPLIES:
                continue
            waiting.note_sent(item.message)
            post = asyncio.create_task(_send(client, url, item.message, inbound, waiting))
            posts.add(post)
            post.add_done_callback(posts.discard)


async def _send(
    client: httpx2.AsyncClient,
    url: str,
    message: JSONRPCMessage,
    inbound: MemoryObjectSendStream[SessionMessage | Exception],
    waiting: Waiting,
) -> None:
    body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    try:
        async with open_answer(client, "POST", url, {"Content-Type": "application/json"}, body):
            return
    except Refused as refused:
        if isinstance(message, JSONRPCRequest):
            await pass_on(inbound, waiting.fail(refused.text, refused.facts, [message.id]))
