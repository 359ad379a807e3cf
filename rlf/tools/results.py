"""From what a tool returns to what a model reads: text, valid UTF-8, within a budget."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import HTTPError, URLError

from rlf.core.callables import locate
from rlf.core.clocks import clock
from rlf.core.redact import clean
from rlf.core.text import MAX_FAULT_CHARS, class_names, describe, size_bytes
from rlf.tools.kind import CallContext, Limits
from rlf.types import Outcome

if TYPE_CHECKING:
    from rlf.endpoints.spec import EndpointFailure

# How a call fails: a typed outcome and words the model can act on, never a traceback.

MAX_NAME_CHARS = 80
"""Longest part of a name the model made up that is looked up or repeated."""

_BEYOND_CHARS = 4096
_MARGIN = 0.1
"""Share of a call's time that is reserved for reporting how it ended."""
_MAX_MEMBERS = 100
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_LOST_CONNECTIONS = frozenset(
    {("requests", name) for name in ("ConnectionError", "ChunkedEncodingError")}
    | {("httpx", name) for name in ("NetworkError", "ConnectTimeout", "RemoteProtocolError")}
    | {("urllib3", "HTTPError"), ("aiohttp", "ClientConnectionError")}
)
"""Exceptions that clients raise in place of a ConnectionError, by package and name of the class: known by name, so that
none of these packages has to be there."""


class ToolFailure(Exception):
    """A failed call whose kind knows the outcome; raised inside the executor, never out of it."""

    def __init__(self, outcome: Outcome, text: str, retry_after_s: float | None = None) -> None:
        """Takes the outcome, words for the model, and how long the tool's host asks to be left alone, if it does."""
        text = clean(text[:MAX_FAULT_CHARS])
        super().__init__(text)
        self.outcome = outcome
        self.text = text
        self.retry_after_s = retry_after_s


def tool_failure(failure: EndpointFailure, headers: Mapping[str, str] = MappingProxyType({})) -> ToolFailure:
    """The same failure as the executor takes it; where the key in `headers` was refused, with where it comes from."""
    from rlf.endpoints.attribution import KEY_REFUSED  # which tools of this machine do without
    from rlf.endpoints.spec import describe_credentials

    is_about_key = failure.outcome is Outcome.SERVICE_ERROR and failure.status in KEY_REFUSED
    credentials = describe_credentials(headers) if is_about_key else ""
    text = f"{failure.text} ({credentials})" if credentials else failure.text
    return ToolFailure(failure.outcome, text, failure.retry_after_s)


def failure_by(fault: BaseException) -> ToolFailure:
    """The failed call that an exception of a tool's own code is."""
    # `isinstance` would ask the exception for its class, which may run code of its own
    if issubclass(type(fault), ToolFailure) and isinstance(fault, ToolFailure):
        return fault
    outcome = outcome_of_fault(fault)
    return ToolFailure(outcome, describe(fault) + (locate(fault)[1] if outcome is Outcome.GONE else ""))


def outcome_of_fault(fault: BaseException) -> Outcome:
    """The outcome for an exception of a tool's own code, wherever that runs: a failed connection judges no call.

    A group, as task groups raise, is what the first of its exceptions is that says nothing about the call.
    """
    try:
        found = [_outcome_of_one(each) for each in _members(fault)]
    except BaseException:  # noqa: BLE001 - whatever an exception is asked may run code of its own, `isinstance` too
        return Outcome.TOOL_ERROR
    return next((each for each in found if each.is_infrastructure), Outcome.TOOL_ERROR)


def _members(fault: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group and of the groups in it, the outermost first and not all of endlessly many."""
    waiting = deque([fault])
    for _ in range(_MAX_MEMBERS):
        if not waiting:
            return
        member = waiting.popleft()
        if isinstance(member, BaseExceptionGroup):
            waiting.extend(member.exceptions)
        else:
            yield member


def _outcome_of_one(fault: BaseException) -> Outcome:
    if isinstance(fault, ModuleNotFoundError) and locate(fault)[1]:
        return Outcome.GONE
    if isinstance(fault, ConnectionRefusedError | socket.gaierror):
        return Outcome.UNREACHABLE
    if isinstance(fault, ConnectionError) or not class_names(fault).isdisjoint(_LOST_CONNECTIONS):
        return Outcome.UNKNOWN
    if isinstance(fault, URLError) and not isinstance(fault, HTTPError) and isinstance(fault.reason, BaseException):
        return outcome_of_fault(fault.reason)
    if isinstance(fault, OSError) and fault.errno in _OUT_OF_DESCRIPTORS:
        return Outcome.INFRA
    if (status := _status_of(fault)) is None:
        return Outcome.TOOL_ERROR
    from rlf.endpoints.attribution import outcome_of_status

    return outcome_of_status(status)


def _status_of(fault: BaseException) -> int | None:
    """The HTTP status that an exception of requests, httpx or aiohttp is about, where it is one of the 5xx.

    They are known by their form, so that none of these packages has to be there: `response.status_code` or `status`. A
    status below 500 may be the service's verdict on the call, which the function's author chose to raise.
    """
    try:
        response = getattr(fault, "response", None)
        found = getattr(response, "status_code", None) if response is not None else getattr(fault, "status", None)
    except BaseException:  # noqa: BLE001 - an attribute of the tool's own code may raise anything
        return None
    return found if type(found) is int and 500 <= found < 600 else None


def inner_deadline_s(context: CallContext, max_margin_s: float = 0.2) -> float:
    """Time for a request: it ends before the executor ends the call, which could not say whether it was delivered."""
    left_s = context.deadline_s
    if context.deadline.timers is not None:  # on a busy loop the executor's has run for a while
        left_s = min(left_s, context.deadline.at - clock.now())
    return max(1e-3, left_s - min(context.deadline_s * _MARGIN, max_margin_s))


def cut_middle(text: str, max_chars: int, redact: Callable[[str], str] = str) -> str:
    """Keeps head and tail, two parts to one, around a marker that says how much is missing.

    At most `max_chars` long, but never shorter than the marker. `redact` is given each part with what lies beyond its
    end, so that it finds a secret that the cut would halve.
    """
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - len(_cut_marker(len(text))))
    tail = room // 3
    head = room - tail
    first = redact(text[: head + _BEYOND_CHARS])[:head]
    last = redact(text[max(0, len(text) - tail - _BEYOND_CHARS) :]) if tail else ""
    return first + _cut_marker(len(text) - room) + last[max(0, len(last) - tail) :]


def _cut_marker(num_chars: int) -> str:
    return f"\n[... {num_chars} characters left out ...]\n"


CountTokens = Callable[[str], int]
"""Tokens of a text for the run's model."""

MAX_KEPT_BYTES = 1_000_000
"""Largest result that is kept whole when the model is shown a part; of a larger one only the hash is."""


class ShownText(NamedTuple):
    """A result within its budget."""

    text: str
    truncated: bool
    size_bytes: int
    """Of the whole result."""
    sha256: str = ""
    original: str | None = None


class OutputBudget:
    """The limits of one tool's output, and what is struck out of it."""

    def __init__(self, limits: Limits, count_tokens: CountTokens | None, redact: Callable[[str], str] = str) -> None:
        """Takes the limits; without `count_tokens` characters alone count."""
        self._max_chars = limits.max_output_chars
        self._max_tokens = limits.max_output_tokens if count_tokens else None
        self._count = count_tokens
        self._redact = redact

    def show(self, text: str) -> ShownText:
        """The text as the model reads it, without secrets, cut where it is too long."""
        if len(text) > MAX_KEPT_BYTES:  # the whole of it is kept nowhere, and to read it all would hold up the loop
            return ShownText(self._cut_text(text, self._redact), True, size_bytes(text), _hash_text(text))
        text = self._redact(text)
        size = len(text) if text.isascii() else size_bytes(text)
        if len(text) <= self._max_chars and (self._max_tokens is None or size <= self._max_tokens):
            return ShownText(text, False, size)  # no tokenizer has less than a byte to a token
        shown = self._cut_text(text, str)
        if shown == text:
            return ShownText(text, False, size)
        return ShownText(shown, True, size, _hash_text(text), text if size <= MAX_KEPT_BYTES else None)

    def _cut_text(self, text: str, redact: Callable[[str], str]) -> str:
        """Cuts to the characters, then to ever fewer until the tokens fit or the marker is left."""
        shown, most = cut_middle(text, self._max_chars, redact), self._max_tokens
        num_chars = len(shown)
        # Aimed a little below what the ratio says: a part has more tokens to a character than the whole, by its marker.
        while most is not None and self._count is not None and num_chars and (num := self._count(shown)) > most:
            num_chars = int(num_chars * most / num * 0.95)
            shown = cut_middle(text, num_chars, redact)
        return shown


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
