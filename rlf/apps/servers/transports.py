"""An MCP server behind a url, over streamable HTTP.

In place of the SDK's own transport because calls must not harm each other: each request has its own task, which ends
with it, and whatever goes wrong with one is the failure of that one. A session that the server has forgotten is opened
again once, under a lock, and what the server refused for that reason is sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
import httpx2
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from rlf.apps.servers.messages import (
    ANSWER,
    HEARD,
    Inbound,
    MessageEdges,
    OpenRequests,
    Outbound,
    Pulse,
    Streams,
    ignore_fault,
    open_streams,
)
from rlf.apps.servers.requests import (
    EVENTS,
    MAX_REPLIES,
    Silence,
    body_of,
    events_of,
    make_client,
    open_answer,
    pass_on,
)
from rlf.core.text import describe
from rlf.endpoints.attribution import RequestFacts, RequestPhase
from rlf.tools.mcp.server import MAX_MESSAGE_BYTES, McpServer

_SESSION: Final = "mcp-session-id"
_VERSION: Final = "mcp-protocol-version"
_ACCEPT: Final = {"Accept": f"application/json, {EVENTS}", "Content-Type": "application/json"}
_FORGOTTEN: Final = frozenset({-32000, -32001})
"""Codes by which servers say with 400 what the protocol has 404 for: that they know no such session."""
_FORGOT: Final = "forgot the session"
_PING: Final = "rlf/ping"
_NOTIFY_S: Final = 10.0
"""Time for what has no answer."""
_SOON_S: Final = 2.0
"""Time for the end of a session."""
_RESUME_S: Final = 1.0
_LEAST_PAUSE_S: Final = 0.05
_MAX_RESUME_PAUSE_S: Final = 30.0
"""A longer pause before a stream is continued is not waited for: calls have less time than that."""
_NUM_RESUMES: Final = 3
"""Attempts in a row, without any event, to continue a stream that broke off."""
_MAX_LISTEN_PAUSE_S: Final = 30.0


@contextlib.asynccontextmanager
async def http_streams(
    server: McpServer, pulse: Pulse, *, on_refusal: Callable[[int], None], on_end: Callable[[str], None], renews: bool
) -> AsyncIterator[Streams]:
    """Reaches the server.

    Args:
        pulse: notes the server's answers.
        on_refusal: takes each status of 4xx and 5xx.
        on_end: called with the reason when the server has forgotten the session and `renews` is false.
        renews: whether a session that the server has forgotten is opened again, without what the server kept in it.
    """
    async with make_client(server) as client:
        with open_streams() as (inbound, outbound, streams):
            talk = _Talk(client, server, inbound, pulse, on_refusal, on_end if not renews else None)
            pump = asyncio.create_task(talk.pump(outbound))
            try:
                yield streams
            finally:
                pump.cancel()
                with anyio.CancelScope(shield=True):
                    await talk.close()


class _Talk:
    """One session: its requests under way, and what names it to the server."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        server: McpServer,
        inbound: Inbound,
        pulse: Pulse,
        on_refusal: Callable[[int], None],
        on_end: Callable[[str], None] | None,
    ) -> None:
        assert server.url is not None, "a command has no url"
        self._client, self._url, self._inbound, self._pulse = client, server.url, inbound, pulse
        self._start_timeout_s = server.start_timeout_s
        self._on_refusal, self._on_end = on_refusal, on_end
        self._session_id: str | None = None
        self._version: str | None = None
        self._opening: JSONRPCRequest | None = None
        """The request that opened the session, which opens the next one too."""
        self._num_opened = 0
        """Sessions opened in place of others."""
        self._is_lost = False
        """Whether the server has forgotten the session, and no other may stand in for it."""
        self._renewal: asyncio.Task[bool] | None = None
        self._requests: dict[int | str, asyncio.Task[None]] = {}
        self._others = set[asyncio.Task[None]]()
        self._listener: asyncio.Task[None] | None = None

    async def pump(self, outbound: Outbound) -> None:
        """Sends what the session has to say, without waiting for answers."""
        async for item in outbound:
            message, metadata = item.message, item.metadata
            headers = dict(metadata.headers or {}) if isinstance(metadata, ClientMessageMetadata) else {}
            self._version = None if _is_opening(message) else headers.get(_VERSION, self._version)
            if isinstance(message, JSONRPCRequest):
                task = asyncio.create_task(self._ask(message, headers))
                self._requests[message.id] = task
                task.add_done_callback(partial(self._forget_request, message.id))
            elif isinstance(message, JSONRPCNotification) and message.method == "notifications/initialized":
                await self._say(message, headers)  # comes before what is asked next
                self._listen()
            elif self._is_worth_sending(message):
                self._start(self._say(message, headers))

    async def close(self) -> None:
        """Ends every request, and the session on the server."""
        alone = (task for task in (self._listener, self._renewal) if task is not None)
        tasks = [*self._requests.values(), *self._others, *alone]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_SOON_S)
        if self._session_id is not None:
            with contextlib.suppress(TimeoutError, Silence):
                async with asyncio.timeout(_SOON_S), open_answer(self._client, "DELETE", self._url, self._headers({})):
                    pass

    def _is_worth_sending(self, message: JSONRPCMessage) -> bool:
        """A cancellation ends the request here, too; since 2026 that is all it does."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            return len(self._others) < MAX_REPLIES
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            request = self._requests.get((message.params or {}).get("requestId", ""))
            if request is not None:
                request.cancel()
            return self._version not in MODERN_PROTOCOL_VERSIONS
        return True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def _forget_request(self, number: int | str, task: asyncio.Task[None]) -> None:
        if self._requests.get(number) is task:
            del self._requests[number]

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        own = {_SESSION: self._session_id, _VERSION: self._version}
        return {**_ACCEPT, **{name: value for name, value in own.items() if value is not None}, **more}

    async def _ask(self, message: JSONRPCRequest, headers: dict[str, str]) -> None:
        """Sends a request and passes on its answer, or what stands in for it."""
        waiting = OpenRequests(self._pulse.hear)
        waiting.note_sent(message)
        try:
            num_opened = self._num_opened
            try:
                await self._exchange(message, headers, waiting)
            except Silence as refused:
                if not self._may_be_forgotten(message, refused) or not await self._renew(num_opened):
                    raise
                await self._exchange(message, headers, waiting)
        except Silence as refused:
            await self._pass(waiting.fail(refused.text, refused.facts))
        except Exception as fault:  # noqa: BLE001 - else nobody would answer the call, which its lateness is charged to
            await self._pass(waiting.fail(f"the exchange broke: {describe(fault)}", RequestFacts(RequestPhase.SENT)))
        if self._is_lost and self._on_end is not None:
            await asyncio.sleep(0)  # the call has its failure before the session ends
            self._on_end(_FORGOT)

    async def _exchange(self, message: JSONRPCRequest, headers: dict[str, str], waiting: OpenRequests) -> None:
        """Raises NoAnswer."""
        body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        try:
            sent = {**_ACCEPT, **headers} if _is_opening(message) else self._headers(headers)
            async with open_answer(self._client, "POST", self._url, sent, body) as response:
                if _is_opening(message):
                    self._session_id, self._opening = response.headers.get(_SESSION), message
                await self._read_answer(response, waiting)
        except Silence as refused:
            status = refused.facts.status
            if status is not None and status >= 400:
                self._on_refusal(status)
            raise
        if waiting:
            raise Silence("the server's answer holds no answer to the request", ANSWER)

    def _may_be_forgotten(self, message: JSONRPCRequest, refused: Silence) -> bool:
        """Whether a refusal may mean the session: with 404 as the protocol has it, or with 400 as some servers do."""
        status, code = refused.facts.status, refused.facts.code
        is_about_sessions = (status == 404 and code != METHOD_NOT_FOUND) or (status == 400 and code in _FORGOTTEN)
        return is_about_sessions and self._session_id is not None and not _is_opening(message)

    async def _read_answer(self, response: httpx2.Response, waiting: OpenRequests) -> None:
        facts = replace(ANSWER, status=response.status_code)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == EVENTS:
            await self._read_events(response, waiting, facts)
            return
        if kind != "application/json" or response.status_code == 202:
            what = f"content type {kind!r:.60}" if kind else "no content"
            raise Silence(f"the server answered with HTTP {response.status_code} and {what}", facts)
        body = await body_of(response, MAX_MESSAGE_BYTES)
        messages = waiting.read(body, facts)
        if messages is None or (isinstance(body, MessageEdges) and not messages):
            facts = replace(facts, is_oversized=isinstance(body, MessageEdges))
            raise Silence("the server's answer cannot be read: it is no valid JSON-RPC", facts)
        await self._pass(messages)

    async def _read_events(self, response: httpx2.Response, waiting: OpenRequests, facts: RequestFacts) -> None:
        """Passes on what comes until the request is answered; a stream that breaks off is continued."""
        last, pause_s, num_failed = None, _RESUME_S, 0
        async with contextlib.AsyncExitStack() as stack:
            while True:
                with contextlib.suppress(Silence):
                    async for event in events_of(response):
                        last, pause_s = event.id or last, event.retry_s if event.retry_s is not None else pause_s
                        num_failed = 0
                        if event.data:
                            await self._pass(waiting.read(event.data, facts) or [])
                        if not waiting:
                            return
                while True:
                    if not last or num_failed >= _NUM_RESUMES or pause_s > _MAX_RESUME_PAUSE_S:
                        raise Silence("the server's stream ended without the answer", RequestFacts(RequestPhase.SENT))
                    await asyncio.sleep(max(pause_s, _LEAST_PAUSE_S))
                    num_failed += 1
                    headers = self._headers({"Accept": EVENTS, "Last-Event-ID": last})
                    with contextlib.suppress(Silence):
                        answer = open_answer(self._client, "GET", self._url, headers)
                        response = await stack.enter_async_context(answer)
                        break

    async def _renew(self, num_opened: int) -> bool:
        """Has a session opened in place of one that the server has forgotten: once for all who ask.

        Returns: False where the server knows the session, so that its refusal is about something else.

        Raises:
            NoAnswer: nothing was carried out, and there is no session for it.
        """
        if self._num_opened != num_opened:
            return True
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._open_again())
            self._renewal.add_done_callback(ignore_fault)  # of one whose callers have all ended
        return await asyncio.shield(self._renewal)  # which continues where the call that began it has ended

    async def _is_known(self) -> bool:
        """Whether the server knows the session, by a ping."""
        ping = JSONRPCRequest(jsonrpc="2.0", id=_PING, method="ping")
        waiting = OpenRequests(self._pulse.hear)
        waiting.note_sent(ping)
        try:
            await self._exchange(ping, {}, waiting)  # nobody waits for what it passes on
        except Silence as refused:
            return not self._may_be_forgotten(ping, refused)
        return True

    async def _open_again(self) -> bool:
        """As `_renew`."""
        if await self._is_known():
            return False
        if self._on_end is not None:
            self._is_lost = True
            raise Silence(f"the server {_FORGOT}, as after a restart", RequestFacts(RequestPhase.NOT_SENT))
        assert self._opening is not None, "a session that was never opened"
        forgotten = self._session_id  # which calls are still sent with: they are refused, and wait for this one's end
        waiting = OpenRequests(self._pulse.hear)
        waiting.note_sent(self._opening)
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._exchange(self._opening, {}, waiting)
            if waiting.last_error is not None:
                raise Silence(waiting.last_error, ANSWER)
        except (Silence, TimeoutError) as fault:
            self._session_id = forgotten
            text = f"the server {_FORGOT} and opens no other: {fault or 'no answer in time'}"
            pause_s = fault.facts.pause_s if isinstance(fault, Silence) else None
            raise Silence(text, RequestFacts(RequestPhase.NOT_SENT, pause_s=pause_s)) from fault
        self._num_opened += 1
        await self._say(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"), {})
        self._listen()
        # A server that was started again may have other tools.
        await self._pass([SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=HEARD))])
        return True

    async def _say(self, message: JSONRPCMessage, headers: dict[str, str]) -> None:
        """Sends what has no answer."""
        body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        with contextlib.suppress(TimeoutError, Silence):
            async with asyncio.timeout(_NOTIFY_S):
                async with open_answer(self._client, "POST", self._url, self._headers(headers), body) as response:
                    await body_of(response, MAX_MESSAGE_BYTES)

    def _listen(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        self._listener = asyncio.create_task(self._hear_all()) if self._session_id is not None else None

    async def _hear_all(self) -> None:
        """Passes on what the server says of its own accord, as long as it has a stream for that."""
        last, pause_s, waiting = None, _RESUME_S, OpenRequests(self._pulse.hear)
        while True:
            more = {"Accept": EVENTS, **({"Last-Event-ID": last} if last else {})}
            try:
                async with open_answer(self._client, "GET", self._url, self._headers(more)) as response:
                    async for event in events_of(response):
                        last, pause_s = event.id or last, event.retry_s if event.retry_s is not None else _RESUME_S
                        if event.data:
                            await self._pass(waiting.read(event.data) or [])
            except Silence as refused:
                if refused.facts.phase is RequestPhase.ANSWERED:  # most often 405: there is no such stream
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s + 0.1, _MAX_LISTEN_PAUSE_S)

    async def _pass(self, messages: list[SessionMessage]) -> None:
        await pass_on(self._inbound, messages)


def _is_opening(message: JSONRPCMessage) -> bool:
    return isinstance(message, JSONRPCRequest) and message.method == "initialize"


# An MCP server behind a url as servers of 2024 speak it: one stream of events with every answer, and posts to it.


@contextlib.asynccontextmanager
async def sse_streams(
    server: McpServer, pulse: Pulse, *, on_refusal: Callable[[int], None], on_end: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Reaches the server; `on_end` takes the reason when its stream ends. Raises NoAnswer where it gives none."""
    assert server.url is not None, "a command has no url"
    waiting = OpenRequests(pulse.hear)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with make_client(server) as client:
        with open_streams() as (inbound, outbound, streams):
            tasks = [asyncio.create_task(_read_stream(client, server.url, inbound, waiting, address, on_end))]
            try:
                try:
                    url = await asyncio.shield(address)
                except Silence as refused:
                    if refused.facts.status is not None and refused.facts.status >= 400:
                        on_refusal(refused.facts.status)
                    raise
                tasks.append(asyncio.create_task(_send_all(client, url, outbound, inbound, waiting)))
                yield streams
            finally:
                for task in tasks:
                    task.cancel()


async def _read_stream(
    client: httpx2.AsyncClient,
    url: str,
    inbound: Inbound,
    waiting: OpenRequests,
    address: asyncio.Future[str],
    on_end: Callable[[str], None],
) -> None:
    why = "ended its stream"
    try:
        async with open_answer(client, "GET", url, {"Accept": EVENTS}) as response:
            async for event in events_of(response):
                if event.name == "endpoint" and not isinstance(event.data, MessageEdges) and not address.done():
                    address.set_result(_address_in(httpx2.URL(url), event.data))
                elif event.name == "message" and event.data:
                    await pass_on(inbound, waiting.read(event.data) or [])
    except Silence as refused:
        why = refused.text
        if not address.done():
            address.set_exception(refused)
            return
    if not address.done():
        address.set_exception(Silence("its stream names no address for messages", ANSWER))
        return
    on_end(why)
    inbound.close()


def _address_in(url: httpx2.URL, data: bytes) -> str:
    """Where messages go, which is on the same host: they hold a key. Raises NoAnswer."""
    try:
        there = url.join(data.decode())
    except (ValueError, httpx2.InvalidURL) as fault:
        raise Silence("the server's address for messages is no URL", ANSWER) from fault
    if (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
        raise Silence(f"the server's address for messages is on another host, {there.host}", ANSWER)
    return str(there)


async def _send_all(
    client: httpx2.AsyncClient, url: str, outbound: Outbound, inbound: Inbound, waiting: OpenRequests
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
    client: httpx2.AsyncClient, url: str, message: JSONRPCMessage, inbound: Inbound, waiting: OpenRequests
) -> None:
    body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    try:
        async with open_answer(client, "POST", url, {"Content-Type": "application/json"}, body):
            return
    except Silence as refused:
        if isinstance(message, JSONRPCRequest):
            await pass_on(inbound, waiting.fail(refused.text, refused.facts, [message.id]))
