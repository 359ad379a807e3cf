"""Messages of a server, from bytes that came over any transport: what cannot be read ends its call, at once.

Half characters and bytes that are no UTF-8 are repaired. An answer is held against the requests that wait for one: the
SDK drops an answer that it cannot match and lets the call wait for its whole time. Every error is marked with what is
known of it, so that nobody need read the SDK's words.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, Final, NamedTuple, Self, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)

from rlf.core.text import clean_value
from rlf.endpoints.attribution import RequestFacts, RequestPhase
from rlf.tools.mcp.server import MAX_MESSAGE_BYTES, NO_ANSWER, readable_tools, too_large

Id: TypeAlias = int | str
ANSWER: Final = RequestFacts(RequestPhase.ANSWERED, is_rpc=True)
"""An answer over a transport without statuses."""
HEARD: Final = "notifications/tools/list_changed"
"""The one notification that is used. The SDK takes so long for each that a flood of others would hold up answers."""
_TO_NOTIFICATIONS: Final = frozenset({METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS})
"""Codes of errors without an id by which servers, against the protocol, answer a notification."""
_EDGE_BYTES: Final = 200
"""Kept of each end of a message over the bound: enough to find the id of the request that it answers."""
_MAX_ASKED: Final = 100
"""Requests of a server that are passed on in a second: the SDK takes so long for each that a flood of others would hold
up answers."""
_MAX_PARTS: Final = 2_000
"""Parts of a result: the SDK validates each for 30 us, in which no deadline fires."""
_MAX_OBJECTS: Final = 50_000
"""Objects of a message: to read one takes some 3 us, in which no deadline fires."""
_OBJECT: Final = re.compile(rb'\{\s*"')
"""Where an object begins: within a text the quote is escaped."""
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
# Read from the bytes of what is no JSON, or too long to be read: `\"id\"` within a text does not match.
_ID: Final = re.compile(rb'"id"\s*:\s*(?:(\d+)|"(\d+)")')
_METHOD: Final = re.compile(rb'"method"\s*:')
_ENVELOPE: Final = b'"jsonrpc"'
_UNREADABLE: Final = "the server's answer cannot be read: it is no valid JSON-RPC"


class MessageEdges(NamedTuple):
    """A message over the bound, as far as it is kept."""

    head: bytes
    tail: bytes
    size_bytes: int


Inbound: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Outbound: TypeAlias = MemoryObjectReceiveStream[SessionMessage]


class Outbox:
    """Where the session sends: it never waits, so that a call that is cancelled twice still cancels its request.

    The second cancellation comes from the executor, at a deadline that is close behind the call's own.
    """

    def __init__(self, stream: MemoryObjectSendStream[SessionMessage]) -> None:
        """Takes a stream without a bound."""
        self._stream = stream

    async def send(self, item: SessionMessage) -> None:
        """Raises as the stream's own does, where nobody reads any more."""
        self._stream.send_nowait(item)

    async def aclose(self) -> None:
        self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()


Streams: TypeAlias = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Outbox]


@contextmanager
def open_streams(max_inbound: float = math.inf) -> Iterator[tuple[Inbound, Outbound, Streams]]:
    """Where a transport puts what comes and takes what goes, and the other ends, which the session has."""
    inbound, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](max_inbound)
    # Without a bound, so that nothing waits for a server that does not read, the end of a call least of all.
    write_stream, outbound = anyio.create_memory_object_stream[SessionMessage](math.inf)
    try:
        yield inbound, outbound, (read_stream, Outbox(write_stream))
    finally:
        for stream in (inbound, read_stream, write_stream, outbound):
            stream.close()


class OpenRequests:
    """The requests that wait for their answer in one stream of messages."""

    def __init__(self, on_answer: Callable[[], None]) -> None:
        """`on_answer` is called at each answer to a request, also to one that was given up."""
        self._on_answer = on_answer
        self._ids: dict[Id, str] = {}
        """Methods, by the ids of the requests."""
        self._last_id = 0
        self.last_error: str | None = None
        """Of an answer that was an error, in the server's words."""
        self._is_change_known = False
        """Whether the session was notified of a changed list, and has not asked for it yet."""
        self._num_notified = 0
        """Notifications that no error without an id was set against."""
        self._num_asked = 0
        """Requests of the server in the second that ends then."""
        self._second_ends = 0.0

    def __bool__(self) -> bool:
        return bool(self._ids)

    def note_sent(self, message: JSONRPCMessage) -> None:
        """A request waits from now on; one that is cancelled no longer."""
        if isinstance(message, JSONRPCRequest):
            self._ids[message.id] = message.method
            self._is_change_known = self._is_change_known and message.method != "tools/list"
            self._last_id = max(self._last_id, message.id) if isinstance(message.id, int) else self._last_id
        elif isinstance(message, JSONRPCNotification):
            self._num_notified += 1
            if message.method == "notifications/cancelled":
                self._ids.pop((message.params or {}).get("requestId", ""), None)

    def read(self, raw: bytes | MessageEdges, facts: RequestFacts = ANSWER) -> list[SessionMessage] | None:
        """The messages that are passed on to the session; None where the bytes are no message.

        Args:
            facts: what is known of the answer that they came in.
        """
        if isinstance(raw, MessageEdges):
            ids = _ids_in(raw.tail.rpartition(b"}")[0][-40:]) or _ids_in(raw.head[:80])
            if not ids and _METHOD.search(raw.head[:80]):
                return []
            return self._fail_one(ids, too_large(raw.size_bytes), replace(facts, is_oversized=bool(ids)))
        if _METHOD.search(raw, 0, _EDGE_BYTES) and b'"id"' not in raw and HEARD.encode() not in raw:
            return []  # nobody parses what a flood has thousands of
        if len(raw) > _MAX_OBJECTS and (num_objects := len(_OBJECT.findall(raw))) > _MAX_OBJECTS:
            ids = _ids_in(raw[-40:]) or _ids_in(raw[:80])
            text = f"the server answered with {num_objects:,} objects; at most {_MAX_OBJECTS:,} are read"
            return self._fail_one(ids, text, replace(facts, is_oversized=bool(ids)))
        try:
            messages = _parse_messages(raw)
        except (ValueError, RecursionError):
            return self._fail_unreadable(raw, facts)
        return [passed for message in messages for passed in self._admit(message, facts)]

    def fail(self, text: str, facts: RequestFacts, ids: list[Id] | None = None) -> list[SessionMessage]:
        """The failure of requests that wait: of those, or of all."""
        failed = [number for number in (self._ids if ids is None else ids) if number in self._ids]
        for number in failed:
            del self._ids[number]
        return [failure(number, text, facts) for number in failed]

    def _admit(self, message: JSONRPCMessage, facts: RequestFacts) -> Iterator[SessionMessage]:
        if isinstance(message, JSONRPCNotification):
            if message.method == HEARD and not self._is_change_known:
                self._is_change_known = True
                yield SessionMessage(message)
            return
        if isinstance(message, JSONRPCRequest):
            if self._may_ask():
                yield SessionMessage(message)
            return
        number = None if message.id is None else coerce_request_id(message.id)
        if number is not None and self._was_asked(number):
            self._on_answer()
        if number is not None and number in self._ids:
            method = self._ids.pop(number)
            if isinstance(message, JSONRPCError):
                self.last_error, message = message.error.message, _mark_error(message, facts)
            elif (num_parts := _count_parts(message.result)) > _MAX_PARTS:
                text = f"the server answered with {num_parts:,} parts; at most {_MAX_PARTS:,} are read"
                yield failure(number, text, replace(facts, is_oversized=True))
                return
            elif method == "tools/list":
                message = message.model_copy(update={"result": readable_tools(message.result)})
            yield SessionMessage(message)
        elif number is not None and self._was_asked(number):
            return  # given up before
        elif isinstance(message, JSONRPCError):
            if number is None and self._num_notified and message.error.code in _TO_NOTIFICATIONS:
                self._num_notified -= 1
                return
            text = f"the server answered with an error of no request: {message.error.message}"
            yield from self.fail(text, replace(facts, code=None))
        else:
            yield from self.fail("the server answered a request that nobody made", facts)

    def _may_ask(self) -> bool:
        now = monotonic()
        if now >= self._second_ends:
            self._second_ends, self._num_asked = now + 1.0, 0
        self._num_asked += 1
        return self._num_asked <= _MAX_ASKED

    def _was_asked(self, number: Id) -> bool:
        return number in self._ids or (isinstance(number, int) and 0 <= number <= self._last_id)

    def _fail_unreadable(self, raw: bytes, facts: RequestFacts) -> list[SessionMessage] | None:
        """None for what is no answer: a line of a log, also one that quotes a message."""
        head, tail = raw[:_EDGE_BYTES].lstrip(b"\xef\xbb\xbf \t\r"), raw[-_EDGE_BYTES:]
        if not head.startswith((b"{", b"[")) or _METHOD.search(head):
            return None
        ids = _ids_in(head[:80]) or _ids_in(tail.rpartition(b"}")[0][-40:])
        if _ENVELOPE in head or _ENVELOPE in tail:
            return self._fail_one(ids, _UNREADABLE, facts)
        is_answer = b'"result"' in raw or b'"error"' in raw  # which a line of a log may have, but not with this id
        return self.fail(_UNREADABLE, facts, ids[-1:]) or None if is_answer else None

    def _fail_one(self, ids: list[Id], text: str, facts: RequestFacts) -> list[SessionMessage]:
        """The failure of the request that was found, unless it was given up; of all that wait where none was."""
        if ids and not any(number in self._ids for number in ids) and all(map(self._was_asked, ids)):
            return []
        found = [number for number in ids if number in self._ids]
        return self.fail(text, facts, found[-1:] or None)


HUNG_S: Final = 5.0
"""Time without an answer, a ping's included, after which a server that is late with a call is given up."""


class Pulse:
    """Whether the server of a session lives: by when it last answered something, be it a ping.

    A call that is late may be so because of its arguments. One that is late while the server answers nothing at all is
    not its own fault, unless it is the first and the server has read it: that one may be what the server hangs in.
    """

    def __init__(self) -> None:
        self.is_unread: Callable[[], bool] = lambda: False
        """Whether the server has left unread some of what it was sent, as far as the transport knows."""
        self._heard_at = monotonic()
        self._heard = asyncio.Event()
        self._blames_one = False
        """Whether a call was late since the last answer that the server may hang in."""

    def hear(self) -> None:
        """The server has answered something."""
        self._heard_at = monotonic()
        self._heard.set()
        self._blames_one = False

    def judge_late(self, pinged_at: float) -> RequestFacts:
        """What is known of a call whose time is up, and during which a ping was sent then."""
        if self._heard_at >= pinged_at:
            return RequestFacts(RequestPhase.SENT, is_late=True, is_cancelled=True)
        is_hung = self._blames_one or self.is_unread()
        self._blames_one = True
        return RequestFacts(RequestPhase.SENT, is_late=True, is_cancelled=True, is_hung=is_hung)

    async def is_heard_within(self, limit_s: float) -> bool:
        """Whether the server answers something from now on, in that time."""
        self._heard.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._heard.wait(), limit_s)
            return True
        return False


def ignore_fault(ended: asyncio.Future[Any]) -> None:
    """Looks at a fault that is nobody's, of which asyncio would complain."""
    if not ended.cancelled():
        ended.exception()


def failure(number: Id, text: str, facts: RequestFacts) -> SessionMessage:
    """The error that stands in for the answer to a request."""
    error = ErrorData(code=NO_ANSWER, message=text, data=facts)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


def _count_parts(result: Mapping[str, Any]) -> int:
    """Parts of a call's or a resource's content."""
    return sum(len(found) for key in ("content", "contents") if isinstance(found := result.get(key), list))


def _mark_error(message: JSONRPCError, facts: RequestFacts) -> JSONRPCError:
    """The error with its facts in place of the server's data, of which one kind alone is read: by the SDK."""
    error = message.error
    if error.code == UNSUPPORTED_PROTOCOL_VERSION:
        return message
    marked = ErrorData(code=error.code, message=error.message, data=replace(facts, code=error.code))
    return JSONRPCError(jsonrpc="2.0", id=message.id, error=marked)


def _ids_in(piece: bytes) -> list[Id]:
    return [int(plain or quoted) for plain, quoted in _ID.findall(piece)]


def _parse_messages(raw: bytes) -> list[JSONRPCMessage]:
    """The message, or those of a batch. Raises ValueError and RecursionError."""
    try:
        return [jsonrpc_message_adapter.validate_json(raw, by_name=False)]
    except ValueError:
        value = _parse_json(raw)
    return [
        jsonrpc_message_adapter.validate_python(one, by_name=False)
        for one in (value if isinstance(value, list) else [value])
    ]


def _parse_json(raw: bytes) -> Any:
    """What the SDK's reader refuses: half characters, control characters, deep nesting, words before the message."""
    text = raw.decode("utf-16" if raw.startswith(_UTF_16) else "utf-8", "replace").removeprefix("\ufeff")
    try:
        return clean_value(json.loads(text, strict=False))
    except ValueError:
        start = text.find('{"jsonrpc"')
        if start <= 0 or text.lstrip().startswith(("{", "[")):
            raise
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
        return clean_value(value)


LINE_END: Final = re.compile(rb"\n")
EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\r\n|\r\n\n|\n\n|\r\r")
"""Of a server-sent event: an empty line, where all three kinds of line breaks are allowed."""
_LONGEST_END: Final = 4
_BREAK: Final = re.compile(rb"\r\n|\n|\r")


class Cutter:
    """Cuts a stream of bytes at its ends, in linear time and holding no more than the bound, however small the pieces
    are that it comes in."""

    def __init__(self, end: re.Pattern[bytes], max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._end, self._max_bytes = end, max_bytes
        self._rest = bytearray()
        """Of the part that has no end yet; only its last bytes once it is over the bound."""
        self._head, self._num_dropped = b"", 0
        """Of a part over the bound: its first bytes, and how many are held no more."""

    def feed(self, chunk: bytes) -> Iterator[bytes | MessageEdges]:
        """The parts that a chunk completes, without empty ones."""
        look_from, start = max(0, len(self._rest) - _LONGEST_END + 1), 0  # an end may lie in two pieces
        self._rest += chunk
        for end in self._end.finditer(self._rest, look_from):
            if end.start() > start or self._num_dropped:
                yield self._take_part(bytes(self._rest[start : end.start()]))
            start = end.end()
        del self._rest[:start]
        if self._num_dropped + len(self._rest) > self._max_bytes:
            self._head = self._head or bytes(self._rest[:_EDGE_BYTES])
            self._num_dropped += max(0, len(self._rest) - _EDGE_BYTES)
            del self._rest[:-_EDGE_BYTES]

    def _take_part(self, part: bytes) -> bytes | MessageEdges:
        size, head = self._num_dropped + len(part), self._head or part[:_EDGE_BYTES]
        self._head, self._num_dropped = b"", 0
        return part if size <= self._max_bytes else MessageEdges(head, part[-_EDGE_BYTES:], size)


class Event(NamedTuple):
    """One event."""

    name: str
    data: bytes | MessageEdges
    id: str | None
    """By which the stream is continued after it, also where the event itself is of no use."""
    retry_s: float | None
    """Pause before the next attempt to continue the stream."""


def read_event(block: bytes | MessageEdges) -> Event:
    """The event that stands before an `EVENT_END`."""
    if isinstance(block, MessageEdges):
        return Event("message", block, None, None)
    name, data, number, retry_s = "message", list[bytes](), None, None
    for line in _BREAK.split(block):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field.removeprefix(b"\xef\xbb\xbf"):
            case b"event":
                name = value.decode("utf-8", "replace")
            case b"data":
                data.append(value)
            case b"id" if b"\0" not in value:
                number = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit():
                retry_s = float(value) / 1000  # infinity for more digits than `int` takes
    return Event(name, b"\n".join(data), number, retry_s)
