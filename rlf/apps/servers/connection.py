"""One session with an MCP server: opened when it is needed, opened again after it ended, never too often.

A task of its own owns the session from its first to its last moment, as the SDK's scopes demand; calls come from any
task. After a failed start the next one waits, twice as long each time; a call made in between is answered at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp_types import CONNECTION_CLOSED, CallToolResult, Notification, ToolListChangedNotification
from pydantic import ValidationError

from rlf.apps.servers.messages import HUNG_S, Pulse, Streams, ignore_fault
from rlf.apps.servers.requests import Silence
from rlf.apps.servers.stdio import stdio_streams
from rlf.apps.servers.transports import http_streams, sse_streams
from rlf.core.errors import RlfError
from rlf.core.identity import hash_json
from rlf.core.text import describe, shorten
from rlf.endpoints.attribution import KEY_REFUSED
from rlf.endpoints.spec import describe_credentials
from rlf.tools.kind import SharedThings
from rlf.tools.mcp.server import (
    SERVER_NAME,
    TRAJECTORY_ENDED,
    Entry,
    Listing,
    McpServer,
    Transport,
    listed_schema,
    variables,
)
from rlf.tools.results import ToolFailure
from rlf.types import Outcome

# Asks an open session for everything that its server offers.

logger = logging.getLogger(__name__)

_MAX_PAGES = 100
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


async def read_listing(session: ClientSession) -> Listing:
    """Asks for every page of tools and of resources, where the server has some."""
    has = session.server_capabilities
    found: list[Entry] = []
    if has is None or has.tools is not None:
        tools = await _read_pages(session.list_tools, "tools")
        found += [
            Entry(
                one.name,
                one.description or one.title or one.name,
                listed_schema(one.input_schema, one.meta),
                one.output_schema,
            )
            for one in tools
        ]
    if has is not None and has.resources is not None:
        resources = await _pages_if_any(session.list_resources, "resources")
        found += [_entry_of_resource(one, str(one.uri), []) for one in resources]
        templates = await _pages_if_any(session.list_resource_templates, "resource_templates")
        found += [_entry_of_resource(one, one.uri_template, variables(one.uri_template)) for one in templates]
    return Listing(tuple(_without_doubles(found)))


def _without_doubles(entries: Sequence[Entry]) -> list[Entry]:
    """Each tool once, as the server lists it first: calls name it, and the server answers as it does."""
    found: dict[tuple[str, str | None], Entry] = {}
    for entry in entries:
        first = found.setdefault((entry.name, entry.resource), entry)
        if first != entry:
            logger.warning("MCP server: it lists %r twice, not alike; the first is taken", entry.name)
    return list(found.values())


async def _pages_if_any(ask: Any, key: str) -> list[Any]:
    """The pages, of a server that has them: one with resources need not list templates, and its tools work without."""
    try:
        return await _read_pages(ask, key)
    except MCPError as error:
        if error.code == types.CONNECTION_CLOSED:
            raise
        if error.code != types.METHOD_NOT_FOUND:
            logger.warning("MCP server: its %s cannot be listed: %s", key.replace("_", " "), error.message)
        return []


async def _read_pages(ask: Any, key: str) -> list[Any]:
    found: list[Any] = []
    cursors: list[str | None] = [None]
    for _ in range(_MAX_PAGES):
        page = await ask(params=types.PaginatedRequestParams(cursor=cursors[-1]))
        items = getattr(page, key)
        if items and all(item in found for item in items):  # the same page again, whatever its cursor
            return found
        found += items
        if not page.next_cursor or page.next_cursor in cursors:
            return found
        cursors.append(page.next_cursor)
    raise RlfError(f"the server lists {key} on more than {_MAX_PAGES} pages")


def _entry_of_resource(resource: types.Resource | types.ResourceTemplate, uri: str, names: list[str]) -> Entry:
    """A resource as a tool that reads it, or a family of them as one that takes the template's variables."""
    description = f"Read {resource.title or resource.name}. {resource.description or ''}".strip()
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    return Entry(_NO_NAME.sub("_", resource.name).strip("_")[:64] or "resource", description, schema, resource=uri)


logging.getLogger("mcp").setLevel(logging.CRITICAL)  # the SDK logs a traceback for what is an outcome here

FIRST_PAUSE_S: Final = 0.1
"""Pause after the second start in a row that came to nothing; it doubles with each further one."""
MAX_PAUSE_S: Final = 30.0
_WORTH_WAITING_S: Final = 0.5
"""A shorter pause is waited for by a call; a longer one refuses it."""
_CLOSING_S: Final = 3.0


class Connection:
    """One session. `session()` gives it, live as far as can be known."""

    def __init__(self, server: McpServer, *, renews: bool = True) -> None:
        """`renews`: whether a session that a url's server has forgotten is opened again, without what it kept."""
        self.server = server
        self._renews = renews
        self.listing = Listing(())
        """The tools that the server last listed."""
        self.why_it_ended = ""
        """How the last session ended, in words; empty while one lives."""
        self.refusal = 0
        """Status with which the host of a url last refused a request; 0: none did."""
        self.pulse = Pulse()
        """Of the live session."""
        self.is_hung = False
        """Whether the last session ended because its server answered nothing."""
        self.num_starts = 0
        self._pings: dict[ClientSession, asyncio.Task[None]] = {}
        """Pings under way."""
        self._doubted: asyncio.Task[None] | None = None
        """Waits for any answer of a server that was late with a call."""
        self._owners: set[asyncio.Task[None]] = set()
        """The owner of the live session, and those that are still closing theirs."""
        self._live: asyncio.Future[ClientSession] | None = None
        self._ended = asyncio.Event()
        """Set to end the live session."""
        self._num_failures = 0
        self._num_answered = 0
        """Calls that the live session answered."""
        self._next_start = 0.0

    async def session(self) -> ClientSession:
        """The session, started if there is none; those who wait for one start share it.

        Raises:
            ToolFailure: UNREACHABLE, with the reason.
        """
        if self._doubted is not None:
            await asyncio.wait((self._doubted,))
        if self._live is None:
            left_s = self._next_start - monotonic()
            if left_s > _WORTH_WAITING_S:
                raise self._unreachable_failure(f"{self.why_it_ended}; it starts again in {left_s:.1f} s")
            if left_s > 0:
                await asyncio.sleep(left_s)
        if self._live is None:
            self._live = asyncio.get_running_loop().create_future()
            self._live.add_done_callback(ignore_fault)  # of a start that nobody waits for any more
            self._ended, self.pulse = asyncio.Event(), Pulse()
            self.num_starts += 1
            owner = asyncio.create_task(self._own_session(self._live, self._ended))
            self._owners.add(owner)
            owner.add_done_callback(self._owners.discard)
        return await asyncio.shield(self._live)

    async def report_end(self, trajectory_id: str) -> None:
        """Lets `rlf tools serve` drop a trajectory's state; other servers would not know what is meant."""
        session = self._live.result() if self._live is not None and _is_open(self._live) else None
        if session is not None and session.server_info is not None and session.server_info.name == SERVER_NAME:
            notification = Notification[dict[str, str], str](
                method=TRAJECTORY_ENDED, params={"trajectory": trajectory_id}
            )
            await session.send_notification(notification)  # type: ignore[arg-type]  # the SDK sends whatever has a method

    def succeeded(self) -> None:
        """A call was answered: the server works, and may be started again at once should it end."""
        self._num_failures = 0
        self._num_answered += 1

    def ping(self, session: ClientSession) -> None:
        """Asks a server that is slow with a call whether it lives."""
        if session not in self._pings and self._is_live(session):
            task = self._pings[session] = asyncio.create_task(_ping(session))
            task.add_done_callback(lambda _: self._pings.pop(session))

    def doubt(self, session: ClientSession) -> None:
        """A call was late: unless the server answers anything soon, a ping at least, its session is given up.

        No call is sent meanwhile, since it would be late too.
        """
        if self._doubted is None and self._is_live(session):
            self.ping(session)
            self._doubted = asyncio.create_task(self._await_answer(session, self.pulse))

    async def _await_answer(self, session: ClientSession, pulse: Pulse) -> None:
        try:
            if not await pulse.is_heard_within(HUNG_S) and self._is_live(session):
                logger.warning("MCP server %s answers nothing, not even a ping; it is started again", self.server.shown)
                self._mark_ended(self._ended, f"answered nothing for {HUNG_S:g} s, not even a ping")
                self.is_hung = True
        finally:
            self._doubted = None

    def _is_live(self, session: ClientSession) -> bool:
        return self._live is not None and _is_open(self._live) and self._live.result() is session

    async def close(self) -> None:
        """Ends the session and its process; bounded in time."""
        for task in (*self._pings.values(), *((self._doubted,) if self._doubted is not None else ())):
            task.cancel()
        self._mark_ended(self._ended, "closed")
        for _ in range(2):  # of their own accord, else cancelled
            if self._owners:
                await asyncio.wait(self._owners, timeout=_CLOSING_S)
            for owner in self._owners:
                owner.cancel()

    def _mark_ended(self, ended: asyncio.Event, why: str) -> None:
        ended.set()
        if ended is self._ended:
            self.why_it_ended = self.why_it_ended or self.server.redactor.text(why)
            self._live = None

    async def _own_session(self, live: asyncio.Future[ClientSession], ended: asyncio.Event) -> None:
        """Opens the session, holds it until it ended, closes it."""
        self.why_it_ended, self.is_hung, self._num_answered, started = "", False, 0, monotonic()
        self._num_failures += 1
        logger.info("MCP server %s begins", self.server.shown)
        pause_s = FIRST_PAUSE_S * 2.0 ** (self._num_failures - 2) if self._num_failures > 1 else 0.0
        self._next_start = monotonic() + min(pause_s, MAX_PAUSE_S)

        def fail(fault: BaseException) -> None:
            self._mark_ended(ended, _in_words(fault, self.server))
            if not live.done():
                live.set_exception(self._unreachable_failure(self.why_it_ended))

        try:
            await self._hold_session(live, ended, fail)
        except Exception as fault:  # noqa: BLE001 - whatever prevents a session is reported to the calls
            fail(fault)
        except BaseException as fault:
            fail(fault)
            raise
        took = (self._num_answered, monotonic() - started)
        logger.info("MCP server %s done: %d calls answered, %.1f s: %s", self.server.shown, *took, self.why_it_ended)

    async def _hold_session(
        self, live: asyncio.Future[ClientSession], ended: asyncio.Event, fail: Callable[[BaseException], None]
    ) -> None:
        changes = asyncio.Event()

        async def on_message(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                changes.set()

        def on_end(why: str) -> None:
            self._mark_ended(ended, why)

        def on_refusal(status: int) -> None:
            self.refusal = status

        streams = self._open_streams(on_end, on_refusal)
        with anyio.fail_after(self.server.start_timeout_s) as scope:
            async with streams as (read, write), _Session(read, write, message_handler=on_message) as session:
                try:
                    try:  # a revision of the protocol that opens sessions, else one that does not
                        await session.initialize()
                    except MCPError as error:
                        if error.code == CONNECTION_CLOSED:
                            raise
                        await session.discover()
                    self.listing = await read_listing(session)
                except Exception as fault:  # reported before the session is closed, which takes its time
                    fail(fault)
                    raise
                except asyncio.CancelledError:
                    if scope.cancel_called:  # else the transport broke, and says why as it is left
                        fail(TimeoutError())
                    raise
                scope.deadline = math.inf
                live.set_result(session)
                logger.info("MCP server %s: %d tools", self.server.shown, len(self.listing.tool_names))
                listing = asyncio.create_task(self._follow_changes(session, changes))
                try:
                    await ended.wait()
                finally:
                    listing.cancel()

    def _open_streams(
        self, on_end: Callable[[str], None], on_refusal: Callable[[int], None]
    ) -> AbstractAsyncContextManager[Streams]:
        server, pulse = self.server, self.pulse
        match server.transport:
            case Transport.STDIO:
                return stdio_streams(server, on_end, pulse)
            case Transport.SSE:
                return sse_streams(server, pulse, on_refusal=on_refusal, on_end=on_end)
            case Transport.HTTP:
                return http_streams(server, pulse, on_refusal=on_refusal, on_end=on_end, renews=self._renews)

    async def _follow_changes(self, session: ClientSession, changes: asyncio.Event) -> None:
        """Reads the list again when the server has changed it, one reading after the other."""
        while True:
            await changes.wait()
            changes.clear()
            try:
                self.listing = await read_listing(session)
            except (MCPError, RlfError, ValueError, RuntimeError) as fault:
                why = _in_words(fault, self.server)
                logger.warning("MCP server %s: its changed list of tools cannot be read: %s", self.server.shown, why)

    def _unreachable_failure(self, why: str) -> ToolFailure:
        credentials = describe_credentials(self.server.headers) if self.refusal in KEY_REFUSED else ""
        why += f" (HTTP {self.refusal}{'; ' if credentials else ''}{credentials})" if self.refusal else ""
        return ToolFailure(Outcome.UNREACHABLE, f"MCP server {shorten(self.server.shown, 120)}: {shorten(why, 300)}")


class _Session(ClientSession):
    """Leaves results to `McpRuntime`: the SDK holds them against the server's schema with expressions that may not end,
    and says of a schema that is wrong what it says of a result that is."""

    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        pass


def describe_breach(fault: ValidationError) -> str:
    """What in a message breaks the protocol, in one line."""
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"breaks the protocol: {'.'.join(map(str, first['loc']))}: {first['msg']}"


def _in_words(fault: BaseException, server: McpServer) -> str:
    """Why there is no session: the one exception within the groups that the SDK's tasks raise."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if isinstance(fault, MCPError | Silence | RlfError):  # in the words of the server, or of the transport
        return str(fault)
    if isinstance(fault, ValidationError):
        return f"its answer {describe_breach(fault)}"
    if isinstance(fault, TimeoutError):
        return f"gave no list of tools within {server.start_timeout_s:g} s"
    if isinstance(fault, FileNotFoundError):
        where = f"no program {server.command!r} on PATH" if server.cwd is None else describe(fault)
        return f"{where}; install it, or write its path"
    return describe(fault)


async def _ping(session: ClientSession) -> None:
    """The transport notes the answer, an error too."""
    with contextlib.suppress(MCPError):
        await session.send_ping()


def _is_open(live: asyncio.Future[ClientSession]) -> bool:
    return live.done() and not live.cancelled() and live.exception() is None


# The sessions with one server, shared by every declaration of an event loop that names it.


class Pool:
    """Sessions with one server. A trajectory keeps to one of them, so that a server that remembers is consistent."""

    def __init__(self, server: McpServer) -> None:
        self.connections = [Connection(server) for _ in range(server.sessions)]
        self._pinned: dict[str, Connection] = {}
        self._num_pinned = dict.fromkeys(self.connections, 0)

    def connection_for(self, trajectory_id: str) -> Connection:
        """The trajectory's connection: at its first call the one with the fewest trajectories."""
        found = self._pinned.get(trajectory_id)
        if found is None:
            found = min(self.connections, key=self._num_pinned.__getitem__)
            self._pinned[trajectory_id] = found
            self._num_pinned[found] += 1
        return found

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Forgets a trajectory; the first of the tools that share the pool does it, and notifies a server of rlf."""
        found = self._pinned.pop(trajectory_id, None)
        if found is not None:
            self._num_pinned[found] -= 1
            await found.report_end(trajectory_id)


def use_pool(server: McpServer) -> AbstractAsyncContextManager[Pool]:
    """The loop's pool of a server, every session of it started; they end with the last user.

    Raises:
        ToolFailure: UNREACHABLE.
    """
    return _POOLS.use(hash_json(server.model_dump(mode="json")), lambda: _open_pool(server))


@asynccontextmanager
async def _open_pool(server: McpServer) -> AsyncIterator[Pool]:
    pool = Pool(server)
    try:
        await asyncio.gather(*(connection.session() for connection in pool.connections))
        yield pool
    finally:
        await asyncio.gather(*(connection.close() for connection in pool.connections))


_POOLS = SharedThings[Pool]()
"""Those that are open, by everything that their server's declaration says."""
