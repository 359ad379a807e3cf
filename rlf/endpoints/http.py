"""One pooled HTTP client: guarded addresses, governed redirects, a total deadline, a cap on what is read.

A client belongs to one event loop and one declaration. It is not shared between declarations, since a connection that
one of them may use is kept open under a name that another may not reach.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from rlf.core.clocks import TimeLimit, Timers
from rlf.core.connections import CleanConnector, HttpAnswer, RequestHead, send_request
from rlf.core.redact import clean
from rlf.endpoints.attribution import RequestFacts, RequestPhase, outcome_of
from rlf.endpoints.guard import AddressGuard, BlockedAddress, GuardedResolver
from rlf.endpoints.spec import EndpointFailure, Redirects, retry_after_s
from rlf.types import Outcome

if TYPE_CHECKING:
    from zlib import _Decompress

# Bodies unpacked piece by piece, so that no more than a cap is ever held, and with a check that they end. Pure.

ACCEPTED: Final = "gzip, deflate"
"""What requests ask for."""
_PIECE_BYTES: Final = 65_536
_MAX_UNITS: Final = 10_000
"""Units of one body: empty ones unpack to nothing that a cap would notice, but take time."""
_GZIP: Final = frozenset({"gzip", "x-gzip"})
_PLAIN: Final = frozenset({"", "identity"})
_GZIP_MAGIC: Final = b"\x1f"


class BodyFault(ValueError):
    """Packed data that cannot be unpacked, or does not end."""


def is_known_coding(coding: str) -> bool:
    """Whether a `Content-Encoding` can be read."""
    return coding.strip().lower() in _PLAIN | _GZIP | {"deflate"}


class Unpacker:
    """Unpacks one body."""

    def __init__(self, coding: str) -> None:
        """Takes its `Content-Encoding`, which must be known."""
        self._coding = coding.strip().lower()
        self._is_plain = self._coding in _PLAIN
        self._unit: _Decompress | None = None
        self._num_units = 0
        """Units of it that have ended."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What more of the body unpacks to. Raises BodyFault."""
        if self._is_plain:
            yield data
            return
        is_full = False  # zlib may hold more than it has given, though it has taken all
        while data or is_full:
            if self._unit is None:
                # What follows a unit is the next one of gzip (RFC 1952, 2.2); anything else is padding.
                if self._num_units and not (self._coding in _GZIP and data.startswith(_GZIP_MAGIC)):
                    return
                self._unit = zlib.decompressobj(self._window_bits(data))
            try:
                piece = self._unit.decompress(data, _PIECE_BYTES)
            except zlib.error as fault:
                raise BodyFault(f"its {self._coding} data is broken") from fault
            if piece:
                yield piece
            is_full, data = len(piece) == _PIECE_BYTES, self._unit.unconsumed_tail
            if self._unit.eof:
                is_full, data = False, self._unit.unused_data
                self._unit, self._num_units = None, self._num_units + 1
                if self._num_units > _MAX_UNITS:
                    raise BodyFault(f"its {self._coding} data has more than {_MAX_UNITS:,} units")

    def finish(self) -> None:
        """Raises BodyFault where the body ended before its data did."""
        if self._unit is not None:
            raise BodyFault(f"its {self._coding} data is cut")

    def _window_bits(self, data: bytes) -> int:
        """Gzip, or zlib, or as some servers write `deflate`, neither header (RFC 9110, 8.4.1.2)."""
        if self._coding in _GZIP:
            return 16 + zlib.MAX_WBITS
        return zlib.MAX_WBITS if data[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS


MAX_REDIRECTS = 5
_KEEPALIVE_S = 4.0
"""Idle connections are dropped before common servers (uvicorn: 5 s) close them under a request."""
_ANSWER_SHARE, _ANSWER_S = 0.1, 0.05
"""The least of a request's time, whichever is less, that is kept for the answer: a connection that never came is then
distinct from an answer that did not."""
_MAX_ERROR_CHARS = 300
_MAX_WORDS = 120
"""Characters of the parser's words for what is no HTTP."""
_MAX_REFUSAL_BYTES = 65_536
"""Most of an error's body that is read: its status has decided by then, and words or usage stand at its beginning."""
_REFUSAL_S = 1.0
"""Time for an error's body: the rest of the call's is for another attempt."""
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
        guard: AddressGuard,
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
            tool_errors: statuses that are this service's verdict on the request, see `outcome_of`.
        """
        self._guard = guard
        self._max_connections = max_connections
        self._max_bytes = max_bytes
        self._redirects = redirects
        self._resolver = resolver
        self._tool_errors = tool_errors
        self._head = lru_cache(_NUM_KEPT)(self._make_head)
        self._connector: CleanConnector | None = None
        """That of the loop that requests run on."""

    async def send(self, request: HttpRequest, *, deadline_s: float) -> HttpResponse:
        """The answer to a request.

        Raises:
            EndpointFailure: UNREACHABLE when nothing was delivered, or when a repeatable request broke off; UNKNOWN
                when any other broke off; TIMEOUT; RATE_LIMITED; OUTPUT_REJECTED when the answer is too large;
                SERVICE_ERROR and TOOL_ERROR by status; SERVICE_ERROR also for a redirect that is not followed;
                TOOL_ERROR also for an address that is refused, and for any failure of a host that an argument chose.
        """
        ends_at, course = monotonic() + deadline_s, _Course(request, deadline_s, hop=request)
        connector = self._connector or self._open_connector()
        limit_s = deadline_s  # the same in all calls of a tool, so that `_to_connect` is made once
        try:
            with TimeLimit(deadline_s, self._timers):
                for _ in range(MAX_REDIRECTS + 1):
                    hop = course.hop
                    head = self._head(hop.method, hop.url, *hop.headers.items())
                    response = await send_request(connector, head, hop.body, _to_connect(limit_s))
                    try:
                        if 200 <= response.status < 300:
                            body = await self._read_body(response, hop.watch)
                            return HttpResponse(body, response.content_type.lower(), response.charset)
                        if response.status not in _REDIRECTS or "Location" not in response.headers:
                            # Also where its body cannot be read: the connection may break, or the time be up, in it.
                            course.refusal = _read_refusal(response, b"", self._tool_errors)
                            raise _read_refusal(response, await _read_words(response), self._tool_errors)
                    finally:
                        response.release()
                    self._follow_redirect(course, _Redirect(response.status, response.headers["Location"]))
                    limit_s = ends_at - monotonic()
            assert course.redirect is not None, "a request without an answer that was not sent on"
            raise self._refuse_redirect(course.redirect, f"more than {MAX_REDIRECTS} redirects")
        except EndpointFailure as failure:
            raise self._attribute_failure(failure, request) from failure
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            typed = course.refusal or _make_failure(fault, course)
            raise self._attribute_failure(typed, request) from fault

    async def close(self) -> None:
        """Closes every connection."""
        if self._connector is not None:
            await self._connector.close()
            self._connector = None

    def _attribute_failure(self, failure: EndpointFailure, request: HttpRequest) -> EndpointFailure:
        """The failure; the caller's own, not the infrastructure's, where it chose a host that cannot be had."""
        is_infrastructure = failure.outcome in (Outcome.UNREACHABLE, Outcome.RATE_LIMITED, Outcome.SERVICE_ERROR)
        if is_infrastructure and not self._guard.trusts(URL(request.url)):
            return EndpointFailure(Outcome.TOOL_ERROR, failure.text, status=failure.status)
        return failure

    def _make_head(self, method: str, url: str, *headers: tuple[str, str]) -> RequestHead:
        """Raises BlockedAddress for an address that may not be asked, ValueError for one that is none."""
        try:
            address = URL(url)
            self._guard.check(address)
        except ValueError as fault:
            raise _BadAddress from fault
        return RequestHead(method, address, {"Accept-Encoding": ACCEPTED, **dict(headers)})

    async def _read_body(self, response: HttpAnswer, watch: Callable[[bytes], None] | None) -> bytes:
        """The body, unpacked as it streams in, so that no more than the cap is ever held."""
        unpacker, content = None, response.content
        if coding := response.headers.get("Content-Encoding"):
            if not is_known_coding(coding):
                facts = RequestFacts(RequestPhase.ANSWERED, response.status)
                text = f"the answer is coded as {coding[:80]!r}"
                raise EndpointFailure(outcome_of(facts), text, status=response.status)
            unpacker = Unpacker(coding)
        chunks, size = list[bytes](), 0
        while not content.at_eof():
            data = await content.readany()
            for chunk in (data,) if unpacker is None else unpacker.feed(data):
                size += len(chunk)
                if size > self._max_bytes:
                    facts = RequestFacts(RequestPhase.ANSWERED, response.status, is_oversized=True)
                    raise EndpointFailure(outcome_of(facts), f"the answer is larger than {self._max_bytes:,} bytes")
                chunks.append(chunk)
                if watch is not None:
                    watch(chunk)
        if unpacker is not None:
            unpacker.finish()
        return b"".join(chunks)

    def _follow_redirect(self, course: _Course, redirect: _Redirect) -> None:
        """Sends the request on. Raises EndpointFailure where it may not be."""
        request, here = course.hop, URL(course.hop.url)
        try:
            there = here.join(URL(redirect.location))
            self._guard.check(there)
        except ValueError as fault:
            raise self._refuse_redirect(redirect, "redirected to what is no address") from fault
        except BlockedAddress as fault:
            raise self._refuse_redirect(redirect, f"redirected to an address that is refused: {fault}") from fault
        is_upgrade = (here.scheme, here.port, there.scheme, there.port) == ("http", 80, "https", 443)
        leaves = there.host != here.host or (there.port != here.port and not is_upgrade) or there.scheme < here.scheme
        if self._redirects is Redirects.NONE or (leaves and self._redirects is Redirects.SAME_HOST):
            raise self._refuse_redirect(redirect, f"redirected to {there.host}, which this tool does not follow")
        if redirect.status in _FOR_NOW and _LOGIN.search(there.path) and not _LOGIN.search(here.path):
            raise self._refuse_redirect(redirect, "redirected to a page where one is to log in")
        headers = {} if leaves else request.headers
        if there == here and redirect.status != 303:
            raise self._refuse_redirect(redirect, "redirected to itself")
        if _loses_body(redirect.status, request.method, here, there):
            headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
            request = request._replace(method="GET", body=None)
        course.hop, course.redirect = request._replace(url=str(there), headers=headers), redirect

    def _refuse_redirect(self, redirect: _Redirect, why: str) -> EndpointFailure:
        outcome = outcome_of(RequestFacts(RequestPhase.ANSWERED, redirect.status), tool_errors=self._tool_errors)
        return EndpointFailure(outcome, f"HTTP {redirect.status}: {why}", status=redirect.status)

    def _open_connector(self) -> CleanConnector:
        self._timers = Timers()
        self._connector = CleanConnector(
            limit=0,
            limit_per_host=self._max_connections,
            keepalive_timeout=_KEEPALIVE_S,
            resolver=GuardedResolver(self._guard, self._resolver),
        )
        return self._connector


class _Redirect(NamedTuple):
    status: int
    location: str


@dataclass(slots=True)
class _Course:
    """How far a request has come."""

    request: HttpRequest
    deadline_s: float
    hop: HttpRequest
    """The request as it is sent at present."""
    redirect: _Redirect | None = None
    """What sent it there."""
    refusal: EndpointFailure | None = None
    """The failure by the status of an answer whose body is being read."""


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# A whole part of a path that is a word for it, also as a file: not `/catalogin`, nor `/docs/how-to-log-in`.
_LOGIN = re.compile(r"/(log[-_]?[io]n|sign[-_]?[io]n|sso|saml2?|authori[sz]e)(\.[a-z]{2,5})?(/|$)", re.IGNORECASE)
"""Where hosts send a browser whose session or key they do not accept, for now."""
_FOR_NOW = frozenset({302, 303, 307})


async def _read_words(response: HttpAnswer) -> bytes:
    """The beginning of an error's body, as far as it comes and can be read."""
    coding = response.headers.get("Content-Encoding", "")
    if not is_known_coding(coding):
        return b""
    chunks, size, unpacker, content = list[bytes](), 0, Unpacker(coding), response.content
    with suppress(TimeoutError, aiohttp.ClientError, BodyFault):
        async with asyncio.timeout(_REFUSAL_S):
            while not content.at_eof() and size < _MAX_REFUSAL_BYTES:
                for chunk in unpacker.feed(await content.readany()):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size >= _MAX_REFUSAL_BYTES:
                        break
    return b"".join(chunks)[:_MAX_REFUSAL_BYTES]


def _loses_body(status: int, method: str, here: URL, there: URL) -> bool:
    """Whether a redirect asks for the result of what was carried out, and not for the request at another place.

    As browsers read it (Fetch, 4.4), but for 301, which says that the place has moved, and 302 to the same place by
    another scheme or with another slash at its end: a GET without the arguments would ask for something else there.
    """
    is_same_place = here.host == there.host and here.path.rstrip("/") == there.path.rstrip("/")
    return (status == 303 and method != "HEAD") or (status == 302 and method == "POST" and not is_same_place)


class _BadAddress(ValueError):
    """A text that is no address."""


@lru_cache(_NUM_KEPT)
def _to_connect(limit_s: float) -> aiohttp.ClientTimeout:
    """Bounds the time for a connection alone: the whole request has a timer that costs less than aiohttp's."""
    if limit_s <= 0:  # for aiohttp: without limit
        raise aiohttp.ConnectionTimeoutError
    return aiohttp.ClientTimeout(
        total=None, connect=limit_s - min(limit_s * _ANSWER_SHARE, _ANSWER_S), ceil_threshold=inf
    )


def _make_failure(fault: Exception, course: _Course) -> EndpointFailure:
    """The failure of a request that raised."""
    if isinstance(fault, aiohttp.ClientConnectorCertificateError):
        why = getattr(fault.certificate_error, "verify_message", "") or "it cannot be verified"
        text = f"its certificate is not trusted: {why}. SSL_CERT_FILE names a file with those that are"
        return EndpointFailure(Outcome.UNREACHABLE, text)
    cause = fault.os_error if isinstance(fault, aiohttp.ClientConnectorError) else fault
    is_late, is_first = isinstance(fault, TimeoutError), course.redirect is None
    if isinstance(cause, BlockedAddress):
        status = None if course.redirect is None else course.redirect.status
        return EndpointFailure(Outcome.TOOL_ERROR if is_first else Outcome.SERVICE_ERROR, str(cause), status=status)
    if isinstance(fault, _BadAddress | aiohttp.InvalidURL):
        return EndpointFailure(Outcome.TOOL_ERROR, "the address is not a URL that rlf can request")
    if isinstance(fault, ValueError) and not isinstance(fault, BodyFault):
        return EndpointFailure(Outcome.SERVICE_ERROR, "a header or the address of the request cannot be sent")
    if is_first and isinstance(fault, _NOT_SENT):
        reason = getattr(cause, "strerror", None) or type(cause).__name__
        text = f"no connection within {course.deadline_s:.3g} s" if is_late else f"no connection: {reason}"
        return EndpointFailure(outcome_of(RequestFacts(RequestPhase.NOT_SENT)), text)
    text = f"the connection broke ({type(fault).__name__})"
    if isinstance(fault, BodyFault):
        text = f"the answer cannot be used: {fault}"
    elif isinstance(fault, aiohttp.ClientResponseError):
        words = clean(fault.message).strip().partition("\n")[0][:_MAX_WORDS].rstrip(":. ")
        text = f"the answer is not valid HTTP: {words}"
    elif isinstance(fault, aiohttp.ClientPayloadError):
        text = "the answer ended before its declared end"
    text = f"no answer within {course.deadline_s:.3g} s" if is_late else text
    is_repeatable = course.request.repeatable or course.request.method in _REPEATABLE
    outcome = outcome_of(RequestFacts(RequestPhase.SENT, is_late=is_late, is_repeatable=is_repeatable))
    return EndpointFailure(outcome, text if is_repeatable else f"{text}; the request may have been carried out")


def _read_refusal(response: HttpAnswer, body: bytes, tool_errors: Collection[int]) -> EndpointFailure:
    words = body[: 4 * _MAX_ERROR_CHARS].decode("utf-8", "replace").strip()
    text = f"HTTP {response.status} {response.reason or ''}".rstrip()
    text += f": {words[:_MAX_ERROR_CHARS]}" if words else ""
    pause_s = retry_after_s(response.headers.get("Retry-After"))
    outcome = outcome_of(RequestFacts(RequestPhase.ANSWERED, response.status, pause_s=pause_s), tool_errors=tool_errors)
    return EndpointFailure(outcome, text, retry_after_s=pause_s, status=response.status, body=body)
