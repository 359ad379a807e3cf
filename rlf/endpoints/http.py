"""One pooled HTTP client: guarded addresses, governed redirects, a total deadline, a cap on what is read.

A client belongs to one event loop and one declaration. It is not shared between declarations, since a connection that
one of them may use is kept open under a name that another may not reach.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from rlf.core.timers import Timers
from rlf.endpoints.attribution import outcome_of_status
from rlf.endpoints.failure import EndpointFailure
from rlf.endpoints.guard import Blocked, Guard, GuardedResolver
from rlf.endpoints.spec import Redirects
from rlf.types import Outcome

MAX_REDIRECTS = 5
_KEEPALIVE_S = 4.0
"""Idle connections are dropped before common servers (uvicorn: 5 s) close them under a request."""
_ANSWER_SHARE, _ANSWER_S = 0.1, 0.05
"""The least of a request's time, whichever is less, that is kept for the answer: a connection that never came is then
distinct from an answer that did not."""
_MAX_ERROR_CHARS = 300
_NUM_KEPT = 128
"""Addresses and times of late requests that need not be looked at again."""
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
"""Methods that HTTP itself declares idempotent."""
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""Faults of a request that never had a connection."""


class HttpRequest(NamedTuple):
    """One request."""

    method: str
    url: str
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None
    repeatable: bool = False
    """Whether sending it twice does no more than sending it once, though its method does not say so."""
    watch: Callable[[bytes], None] | None = None
    """Takes the body of an answer of the 2xx range piece by piece, as it comes."""


class HttpResponse(NamedTuple):
    """An answer of the 2xx range."""

    body: bytes
    """Decompressed."""
    content_type: str
    """Without parameters, in lower case."""
    charset: str | None


class HttpClient:
    """Sends requests. Made outside of a loop or in it; opens its connections at the first request, on that loop."""

    def __init__(
        self,
        guard: Guard,
        *,
        max_connections: int,
        max_bytes: int,
        redirects: Redirects = Redirects.SAME_HOST,
        resolver: AbstractResolver | None = None,
        tool_errors: Collection[int] = (),
    ) -> None:
        """Sets what holds for every request.

        Args:
            max_connections: to one host.
            max_bytes: of a decompressed answer.
            resolver: what looks names up; the guard judges its answers.
            tool_errors: statuses that are this service's verdict on the request, see `outcome_of_status`.
        """
        self._guard = guard
        self._max_connections = max_connections
        self._max_bytes = max_bytes
        self._redirects = redirects
        self._resolver = resolver
        self._tool_errors = tool_errors
        self._checked = lru_cache(_NUM_KEPT)(partial(_check_url, guard))
        self._open: _Open | None = None

    async def send(self, request: HttpRequest, *, deadline_s: float) -> HttpResponse:
        """The answer to a request.

        Raises:
            EndpointFailure: UNREACHABLE when nothing was delivered, or when a repeatable request broke off; UNKNOWN
                when any other broke off; TIMEOUT; RATE_LIMITED; OUTPUT_REJECTED when the answer is too large;
                SERVICE_ERROR and TOOL_ERROR by status; SERVICE_ERROR also for a redirect that is not followed;
                TOOL_ERROR also for an address that is refused, and for any failure of a host that an argument chose.
        """
        deadline, hop, limit_s, redirect = monotonic() + deadline_s, request, deadline_s, None
        session, timers = self._open or self._open_session()
        try:
            with timers.within(deadline_s):
                for _ in range(MAX_REDIRECTS + 1):
                    found = await self._request_once(session, hop, limit_s)
                    if isinstance(found, HttpResponse):
                        return found
                    hop, limit_s, redirect = self._follow_redirect(hop, found), deadline - monotonic(), found
            status = redirect.status if redirect is not None else None
            text = f"HTTP {status}: more than {MAX_REDIRECTS} redirects"
            raise EndpointFailure(Outcome.SERVICE_ERROR, text, status=status)
        except EndpointFailure as failure:
            raise self._attribute_failure(failure, request) from failure
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            sent = redirect is not None or not isinstance(fault, _NOT_SENT)
            raise self._attribute_failure(_make_failure(fault, sent, request, deadline_s), request) from fault

    async def close(self) -> None:
        """Closes every connection."""
        if self._open is not None:
            await self._open.session.close()
            self._open = None

    def _attribute_failure(self, failure: EndpointFailure, request: HttpRequest) -> EndpointFailure:
        """The failure; the caller's own, not the infrastructure's, where it chose a host that cannot be had."""
        is_infrastructure = failure.outcome in (Outcome.UNREACHABLE, Outcome.RATE_LIMITED, Outcome.SERVICE_ERROR)
        if is_infrastructure and not self._guard.trusts(URL(request.url)):
            return EndpointFailure(Outcome.TOOL_ERROR, failure.text, status=failure.status)
        return failure

    async def _request_once(
        self, session: aiohttp.ClientSession, request: HttpRequest, limit_s: float
    ) -> HttpResponse | _Redirect:
        response = await session.request(
            request.method,
            self._checked(request.url),
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            timeout=_to_connect(limit_s),
        )
        try:
            if response.status in _REDIRECTS and "Location" in response.headers:
                return _Redirect(response.status, response.headers["Location"])
            is_good = 200 <= response.status < 300
            body = await self._read_body(response, request.watch if is_good else None)
            if is_good:
                return HttpResponse(body, response.content_type.lower(), response.charset)
            raise _read_refusal(response, body, self._tool_errors)
        finally:
            response.release()

    async def _read_body(self, response: aiohttp.ClientResponse, watch: Callable[[bytes], None] | None) -> bytes:
        """The body, decompressed as it streams in, so that no more than the cap is ever held."""
        chunks, size, content = [], 0, response.content
        while not content.at_eof():
            chunk = await content.readany()
            size += len(chunk)
            if size > self._max_bytes:
                response.close()
                raise EndpointFailure(Outcome.OUTPUT_REJECTED, f"the answer is larger than {self._max_bytes:,} bytes")
            chunks.append(chunk)
            if watch is not None:
                watch(chunk)
        return b"".join(chunks)

    def _follow_redirect(self, request: HttpRequest, redirect: _Redirect) -> HttpRequest:
        here = URL(request.url)
        there = here.join(URL(redirect.location))
        leaves = there.host != here.host or (there.port != here.port and not _is_upgrade(here, there))
        if self._redirects is Redirects.NONE or (leaves and self._redirects is Redirects.SAME_HOST):
            text = f"HTTP {redirect.status}: redirected to {there.host}, which this tool does not follow"
            outcome = Outcome.TOOL_ERROR if redirect.status in self._tool_errors else Outcome.SERVICE_ERROR
            raise EndpointFailure(outcome, text, status=redirect.status)
        if redirect.status == 303 or (redirect.status in (301, 302) and request.method == "POST"):
            request = request._replace(method="GET", body=None)
        return request._replace(url=str(there), headers={} if leaves else request.headers)

    def _open_session(self) -> _Open:
        connector = aiohttp.TCPConnector(
            limit=0,
            limit_per_host=self._max_connections,
            keepalive_timeout=_KEEPALIVE_S,
            resolver=GuardedResolver(self._guard, self._resolver),
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Content-Type",),  # a request without a body has none
        )
        self._open = _Open(session, Timers())
        return self._open


class _Open(NamedTuple):
    """The session and timers of the loop that requests run on."""

    session: aiohttp.ClientSession
    timers: Timers


class _Redirect(NamedTuple):
    status: int
    location: str


_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def _check_url(guard: Guard, text: str) -> URL:
    """The address that a text is. Raises Blocked."""
    url = URL(text)
    guard.check(url)
    return url


@lru_cache(_NUM_KEPT)
def _to_connect(limit_s: float) -> aiohttp.ClientTimeout:
    """Bounds the time for a connection alone: the whole request has a timer that costs less than aiohttp's."""
    if limit_s <= 0:  # for aiohttp: without limit
        raise aiohttp.ConnectionTimeoutError
    return aiohttp.ClientTimeout(
        total=None, connect=limit_s - min(limit_s * _ANSWER_SHARE, _ANSWER_S), ceil_threshold=inf
    )


def _is_upgrade(here: URL, there: URL) -> bool:
    return (here.scheme, here.port, there.scheme, there.port) == ("http", 80, "https", 443)


def _make_failure(fault: Exception, sent: bool, request: HttpRequest, deadline_s: float) -> EndpointFailure:
    """The failure of a request that raised.

    Args:
        sent: whether something of the request may have been delivered.
    """
    if isinstance(fault, aiohttp.ClientConnectorCertificateError):
        why = getattr(fault.certificate_error, "verify_message", "") or "it cannot be verified"
        text = f"its certificate is not trusted: {why}. SSL_CERT_FILE names a file with those that are"
        return EndpointFailure(Outcome.UNREACHABLE, text)
    cause = fault.os_error if isinstance(fault, aiohttp.ClientConnectorError) else fault
    is_late = isinstance(fault, TimeoutError)
    if isinstance(cause, Blocked):
        return EndpointFailure(Outcome.TOOL_ERROR, str(cause))
    if isinstance(fault, ValueError):
        return EndpointFailure(Outcome.TOOL_ERROR, "the address is not a URL that rlf can request")
    if not sent:
        reason = getattr(cause, "strerror", None) or type(cause).__name__
        text = f"no connection within {deadline_s:.3g} s" if is_late else f"no connection: {reason}"
        return EndpointFailure(Outcome.UNREACHABLE, text)
    text = f"no answer within {deadline_s:.3g} s" if is_late else f"the connection broke ({type(fault).__name__})"
    if request.repeatable or request.method in _REPEATABLE:
        return EndpointFailure(Outcome.TIMEOUT if is_late else Outcome.UNREACHABLE, text)
    return EndpointFailure(Outcome.UNKNOWN, f"{text}; the request may have been carried out")


def _read_refusal(response: aiohttp.ClientResponse, body: bytes, tool_errors: Collection[int]) -> EndpointFailure:
    words = body[: 4 * _MAX_ERROR_CHARS].decode("utf-8", "replace").strip()
    text = f"HTTP {response.status} {response.reason or ''}".rstrip()
    text += f": {words[:_MAX_ERROR_CHARS]}" if words else ""
    pause_s = retry_after_s(response.headers.get("Retry-After"))
    outcome = outcome_of_status(response.status, has_pause=pause_s is not None, tool_errors=tool_errors)
    return EndpointFailure(outcome, text, retry_after_s=pause_s, status=response.status, body=body)


def retry_after_s(header: str | None) -> float | None:
    """The pause that a `Retry-After` header asks for, in seconds or as a date; None where it says nothing sensible."""
    if header is None:
        return None
    if header.strip().isascii() and header.strip().isdigit():
        return float(header)
    try:
        then = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max((then - datetime.now(UTC)).total_seconds(), 0.0)
