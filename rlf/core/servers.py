"""Every server of rlf: its port, the signals that stop it, and the guard in front of it, whose requests it answers.

A browser on this machine reaches what listens on it, so that any page could. Two checks keep pages out: `Host` must be
an address or a name of this server, which a name that was rebound to its address is not, and `Origin` must be the
server itself. Programs send no Origin, and the name that they were given as Host.

A body that does not arrive in time is answered with 408 and its connection closed: a client that never ends one would
hold it for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import ssl
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rlf.core.errors import RlfError, RunError

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

ALLOWED_HOSTS = "RLF_ALLOWED_HOSTS"
"""The variable with further names that servers of rlf's go by, with commas: those of a proxy or a cluster's service."""
BODY_S = 30.0
"""Time for the body of a request to arrive."""
_MISDIRECTED, _FORBIDDEN, _TOO_LATE = 421, 403, 408
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[Any]]
_Send = Callable[[Any], Awaitable[None]]
_Asgi = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def refused_request(headers: Mapping[str, str], names: frozenset[str]) -> tuple[int, str] | None:
    """Why a request is not answered, with its status; None where it is. Names of `headers` in any case."""
    host, origin = headers.get("Host", ""), headers.get("Origin")
    if host and not _is_own(host, names):
        return (
            _MISDIRECTED,
            f"{host[:200]!r} is not a known name of this server. If it is one, set {ALLOWED_HOSTS} to it.",
        )
    is_foreign = origin is not None and _place_of(origin) != host.lower()
    if is_foreign or headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return _FORBIDDEN, "this server refuses requests from pages of other sites."
    return None


def own_names(*hosts: str) -> frozenset[str]:
    """Names that a server goes by: this machine's, of its addresses, and of the environment."""
    named = ("localhost", socket.gethostname(), *hosts, *os.environ.get(ALLOWED_HOSTS, "").split(","))
    return frozenset(name.strip().lower() for name in named if name.strip())


def guard_visitors(*hosts: str, body_s: float | None = None) -> Middleware:
    """The guard of an aiohttp application.

    Args:
        hosts: names that it listens on or is reached by.
        body_s: time for a body to arrive; None: `BODY_S`.
    """
    from aiohttp import web

    names = own_names(*hosts)

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        refused = refused_request(request.headers, names)
        if refused is not None:
            return web.json_response({"error": refused[1]}, status=refused[0], headers={"Connection": "close"})
        if request.content.is_eof():  # it came with the head, as most do
            return await handler(request)
        # the reader of the body gets the refusal, so that each application answers in its own form
        late = asyncio.get_running_loop().call_later(body_s or BODY_S, _end_body, request)
        try:
            return await handler(request)
        finally:
            late.cancel()

    def _end_body(request: web.Request) -> None:
        if not request.content.is_eof():
            request.content.set_exception(web.HTTPRequestTimeout(text=late_body(body_s)))

    return guard


def late_body(body_s: float | None = None) -> str:
    """Why a request is given up whose body has not arrived."""
    return f"the body did not arrive within {body_s or BODY_S:g} s"


async def receive_body(receive: _Receive) -> _Receive | None:
    """What gives an ASGI application the body, which has arrived; None where it has not in time."""
    messages = deque[Any]()
    try:
        async with asyncio.timeout(BODY_S):
            while not messages or messages[-1].get("more_body"):
                messages.append(await receive())
    except TimeoutError:
        return None

    async def receive_again() -> Any:
        return messages.popleft() if messages else await receive()

    return receive_again


class VisitorGuard:
    """The same guard around an ASGI application: rlf's MCP server, and vLLM's own with `--middleware`."""

    def __init__(self, app: _Asgi, *hosts: str) -> None:
        self._app = app
        self._names = own_names(*hosts)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answers what is refused or does not arrive; passes everything else on."""
        refused = None
        if scope["type"] in ("http", "websocket"):
            headers = {name.decode("latin-1").title(): value.decode("latin-1") for name, value in scope["headers"]}
            refused = refused_request(headers, self._names)
        body: _Receive | None = receive
        if refused is None and scope["type"] == "http":
            body = await receive_body(receive)
            refused = (_TOO_LATE, late_body()) if body is None else None
        if refused is None and body is not None:
            await self._app(scope, body, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif refused is not None:
            kinds = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": refused[0], "headers": kinds})
            await send({"type": "http.response.body", "body": refused[1].encode()})


@lru_cache(maxsize=1024)
def _is_own(host: str, names: frozenset[str]) -> bool:
    """An address is nobody's name: what a browser shows as one cannot be rebound."""
    name = _name_of(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names
    return True


def _place_of(origin: str) -> str | None:
    """Host and port of an origin, None where it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _name_of(host: str) -> str:
    """`Host` without its port, brackets and final dot."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


# TLS between machines of one owner: a server shows a certificate, and its clients trust that one and no other.


@dataclass(frozen=True, slots=True)
class TlsCertificate:
    """A server's certificate, and its private key."""

    file: Path
    """PEM: the certificate, and those that lead from it to its issuer where it has one."""
    key: Path
    """PEM, not encrypted."""


def certificate_of(file: Path | None, key: Path | None) -> TlsCertificate | None:
    """A pair of options; None without both. Raises RlfError for one alone."""
    if file is None and key is None:
        return None
    if file is None or key is None:
        raise RlfError("--certificate, --key: got one without the other; a server needs both. Write both.")
    return TlsCertificate(file, key)


def server_context(certificate: TlsCertificate | None) -> ssl.SSLContext | None:
    """The TLS context of a server; None for none. Raises RlfError where the files cannot be used."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate.file, certificate.key, password=lambda: b"")
    except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
        raise RlfError(
            f"{certificate.file}, {certificate.key}: these are not a certificate and its key: {fault}. Name two files "
            "in PEM, the key without a password."
        ) from fault
    return context


def client_context(file: Path) -> ssl.SSLContext:
    """Trusts the server that shows this certificate, by the name in it, and no other.

    Raises:
        OSError: the file cannot be read, or is no certificate.
    """
    context = ssl.create_default_context(cafile=file)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # one that an authority has issued is enough by itself
    return context


BACKLOG = 1024
"""Connections that wait to be taken. It is lost where a server listens once more: 128 are the libraries' own."""


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises RunError with the fix where it cannot be opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            fix = "Stop the program that listens there, or give another --port; 0 takes any that is free."
            raise RunError(f"port {port} of {host} is in use. {fix}") from error
        raise RunError(
            f"cannot listen on {host} port {port}: {error.strerror}. Give another --host or --port."
        ) from error
    return listener


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at SIGINT and SIGTERM while the loop runs what is within; then both have their handlers back."""
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in handlers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # None: it was set outside Python, which cannot set it back
                signal.signal(number, handler)


def url_of(listener: socket.socket) -> str:
    """The address of a server on a socket, as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def serve_app(app: web.Application, listener: socket.socket, tell: Callable[[str], None]) -> None:
    """Serves an application until SIGINT or SIGTERM; a second one does not cut off its end.

    Args:
        tell: called with the address once it is served.
    """
    from aiohttp import web

    stopped = asyncio.Event()
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2)
    await runner.setup()
    with stopping(stopped.set):
        try:
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
            tell(url_of(listener))
            await stopped.wait()
        finally:
            await runner.cleanup()


def served_stdio() -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """The two streams of an MCP server on stdin and stdout. What else prints while they are open goes to stderr."""
    from mcp.server.stdio import stdio_server

    # It turns descriptor 1 away from the client; a command's own stdout has a duplicate, which would still lead there.
    sys.stdout.flush()
    sys.stdout = sys.__stdout__ or sys.stdout
    return stdio_server()
