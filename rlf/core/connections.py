"""Connections of a client that are used again only while nothing lies unread on them, and requests that are sent once.

An answer that nobody asked for, left on an idle connection, would be taken for that to the next request, which another
trajectory may have made. Loads aiohttp.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection
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
