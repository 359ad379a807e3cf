"""Connections of a client that are used again only while nothing lies unread on them, and requests that are sent once.

An answer that nobody asked for, left on an idle connection, would be taken for that to the next request, which another
trajectory may have made. Loads aiohttp.
"""

from __future__ import annotations

import re
import select
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp.hdrs import CONTENT_LENGTH, TRANSFER_ENCODING
from aiohttp.helpers import HeadersMixin
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.http_parser import RawResponseMessage
    from aiohttp.tracing import Trace


class CleanConnector(aiohttp.TCPConnector):
    """Closes a connection that bytes have come on, or the end, since its last answer ended."""

    # aiohttp has no public hook for a connection that is used again; `_get` was checked in 3.14.
    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            transport = connection.transport
            if transport is not None and connection.protocol is not None and not connection.protocol.should_close:
                # Nothing may have come since the last answer: neither to the parser, which `should_close` says, nor to
                # the socket, which the loop may not have read yet.
                unread = select.poll()
                unread.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
                if not unread.poll(0):
                    return connection
            connection.close()
        return None


def open_session(connector: CleanConnector, **settings: Any) -> aiohttp.ClientSession:
    """A session without cookies that sends each request once."""
    session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **settings)
    # aiohttp sends GET, PUT and DELETE again where a connection breaks, which no limit, rate or count of attempts sees.
    # Its only switch is this attribute (checked in 3.14; its own test client sets it too).
    session._retry_connection = False
    return session


_CONTROL: Final = re.compile("[\0-\x08\n-\x1f\x7f]")
"""What would end a header, or is none."""


class RequestHead:
    """What requests that differ in their bodies alone have in common, written once."""

    def __init__(self, method: str, url: URL, headers: Mapping[str, str]) -> None:
        """Takes what the requests say. Raises ValueError where that cannot be sent."""
        # aiohttp adds the host, the credentials of the address and its own headers; it connects by such a request.
        self.request = aiohttp.ClientRequest(method, url, headers=headers, skip_auto_headers=("Content-Type",))
        named, target = self.request.headers, self.request.url.raw_path_qs
        lengths = named.popall(CONTENT_LENGTH, [])  # 0, where a request without a body is to say so
        named.popall(TRANSFER_ENCODING, None)
        lines = [f"{self.request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
        if any(map(_CONTROL.search, lines)):
            raise ValueError("a control character in a header")
        self.start = "".join(f"{line}\r\n" for line in lines).encode()
        """What stands before the length of a body."""
        self.without_body = self.start + (b"Content-Length: 0\r\n\r\n" if lengths else b"\r\n")
        """All of a request that has none."""


class HttpAnswer(HeadersMixin):
    """The head of an answer, and its body as it comes."""

    def __init__(self, connection: Connection, message: RawResponseMessage, content: StreamReader) -> None:
        self._connection, self._headers, self.content = connection, message.headers, content
        self.headers, self.status, self.reason = message.headers, message.code, message.reason

    def release(self) -> None:
        """Gives the connection back; closes it where the answer has not ended, or the request was not all sent."""
        connection = self._connection
        if (transport := connection.transport) is not None and transport.get_write_buffer_size():
            transport.abort()  # to close it would wait until the other side has read that
            connection.close()
        connection.release()


async def send_request(
    connector: CleanConnector, head: RequestHead, body: bytes | None, to_connect: aiohttp.ClientTimeout
) -> HttpAnswer:
    """Sends a request once, on a pooled connection, and reads the head of its answer.

    The way of `aiohttp.ClientSession` without what no request here has: cookies, redirects, hooks, a task that writes
    the body, a second try. They took most of its time. Connector, parser and errors are aiohttp's.

    Args:
        to_connect: of which the time for a connection alone counts.

    Raises:
        aiohttp.ClientError: as a session raises it.
    """
    request = head.request
    try:
        connection = await connector.connect(request, [], to_connect)
    except TimeoutError as late:
        raise aiohttp.ConnectionTimeoutError from late
    try:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:  # lost in the moment that it was made
            raise aiohttp.ServerDisconnectedError
        is_head = request.method == "HEAD"
        protocol.set_response_params(skip_payload=is_head, read_until_eof=True, auto_decompress=False)
        if body is None:
            transport.write(head.without_body)
        else:
            transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head.start, len(body), body))
        while True:
            message, content = await protocol.read()
            if not 100 <= message.code < 200 or message.code == 101:  # others announce the answer
                return HttpAnswer(connection, message, content)
    except HttpProcessingError as fault:
        connection.close()
        raise aiohttp.ClientResponseError(request.request_info, (), status=fault.code, message=fault.message) from fault
    except BaseException:
        if (transport := connection.transport) is not None and transport.get_write_buffer_size():
            transport.abort()
        connection.close()
        raise
