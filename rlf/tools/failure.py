"""How a call fails: a typed outcome and words the model can act on, never a traceback."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Iterator
from urllib.error import HTTPError, URLError

from rlf.core.text import MAX_FAULT_CHARS, class_names, clean, describe
from rlf.endpoints.attribution import outcome_of_status
from rlf.types import Outcome

MAX_ERROR_CHARS = 500
"""Longest error text the model is shown."""
MAX_NAME_CHARS = 80
"""Longest part of a name the model made up that is looked up or repeated."""

_MAX_MEMBERS = 100
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


_LOST_CONNECTIONS = frozenset(
    {
        ("requests", "ConnectionError"),
        ("requests", "ChunkedEncodingError"),
        ("urllib3", "HTTPError"),
        ("httpx", "NetworkError"),
        ("httpx", "ConnectTimeout"),
        ("httpx", "RemoteProtocolError"),
        ("aiohttp", "ClientConnectionError"),
    }
)
"""Exceptions that clients raise in place of a ConnectionError, by package and name of the class."""


class ToolFailure(Exception):
    """A failed call whose kind knows the outcome; raised inside the executor, never out of it."""

    def __init__(self, outcome: Outcome, text: str, retry_after_s: float | None = None) -> None:
        """Takes the outcome, words for the model, and how long the tool's host asks to be left alone, if it does."""
        text = clean(text[:MAX_FAULT_CHARS])
        super().__init__(text)
        self.outcome = outcome
        self.text = text
        self.retry_after_s = retry_after_s


def words_of(fault: BaseException) -> str:
    """What an exception says: a failed call's own words, any other's description."""
    # `isinstance` would ask the exception for its class, which may run code of its own
    return fault.text if issubclass(type(fault), ToolFailure) and isinstance(fault, ToolFailure) else describe(fault)


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
    if isinstance(fault, ConnectionRefusedError | socket.gaierror):
        return Outcome.UNREACHABLE
    if isinstance(fault, ConnectionError) or _is_lost_connection(fault):
        return Outcome.UNKNOWN
    if isinstance(fault, URLError) and not isinstance(fault, HTTPError) and isinstance(fault.reason, BaseException):
        return outcome_of_fault(fault.reason)
    if isinstance(fault, OSError) and fault.errno in _OUT_OF_DESCRIPTORS:
        return Outcome.INFRA
    status = _status_of(fault)
    return Outcome.TOOL_ERROR if status is None else outcome_of_status(status)


def _is_lost_connection(fault: BaseException) -> bool:
    """Known by name, so that none of these packages has to be there."""
    return not class_names(fault).isdisjoint(_LOST_CONNECTIONS)


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


def shorten(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    """The text, cut with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
