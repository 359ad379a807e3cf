"""Whose failure a call's is: the one table, for every transport, from typed facts and never from a client's words.

The policy is charged for what its arguments may have caused and for nothing else. All other failures leave its
trajectory unscorable (`Outcome.is_infrastructure`).

| phase    | what is known                                        | outcome                               |
|----------|------------------------------------------------------|---------------------------------------|
| not sent | no connection, or refused before it was carried out  | unreachable                           |
| sent     | the other side answers nothing, not even a ping      | service_error                         |
| sent     | late, and may be repeated or was cancelled           | timeout                               |
| sent     | broke off, and may be repeated                       | unreachable                           |
| sent     | late or broke off otherwise                          | unknown                               |
| answered | a status that is no success                          | `outcome_of_status`                   |
| answered | an error of JSON-RPC, with a success or a verdict    | `outcome_of_code`                     |
| answered | a success that is too large to read                  | output_rejected                       |
| answered | a success that cannot be read                        | service_error                         |
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rlf.types import Outcome

KEY_REFUSED: Final = frozenset({401, 403})
"""Statuses by which a service refuses the caller's key."""
_VERDICTS: Final = frozenset({400, 404, 409, 410, 412, 413, 414, 422, 423, 451})
"""Statuses that judge what was asked for. All others judge the method, the headers or the caller, which the declaration
sets, or the service's own state."""
_TOO_LARGE: Final = frozenset({413, 414})
"""Verdicts on the size of what was sent, which hold where the verdict on a call is otherwise in the answer's body."""
_RPC_VERDICTS: Final = frozenset({-32602, -32002})
"""JSON-RPC: the parameters are not valid; MCP before 2026: there is no such resource."""
_RPC_RESERVED: Final = range(-32768, -31999)
"""Codes of JSON-RPC itself and of servers; all others are an application's own."""
_STATUSES: Final = range(300, 600)


class RequestPhase(StrEnum):
    """How far a request came."""

    NOT_SENT = "not_sent"
    """The other side has carried out none of it."""
    SENT = "sent"
    """It may have been delivered; no answer came, or a part of one."""
    ANSWERED = "answered"
    """An answer came."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is known of a request without a usable answer."""

    phase: RequestPhase
    status: int | None = None
    """HTTP status of the answer; None where the transport has none."""
    code: int | None = None
    """Of an error in the words of JSON-RPC."""
    pause_s: float | None = None
    """Pause that the host asks for, by `Retry-After`."""
    is_late: bool = False
    is_repeatable: bool = False
    """Whether sending it twice does no more than sending it once."""
    is_cancelled: bool = False
    """Whether the other side was notified that its answer is not waited for."""
    is_hung: bool = False
    """Whether the other side answers nothing at all, so that the reason is not in this request."""
    is_oversized: bool = False
    """Whether the answer is too large to read."""
    is_rpc: bool = False
    """Whether the verdict on a call is in the answer's body, so that a status judges the transport alone."""


def outcome_of(facts: RequestFacts, *, tool_errors: Collection[int] = ()) -> Outcome:
    """The outcome of a request without a usable answer, by the table above.

    Args:
        tool_errors: statuses that this service uses for a verdict on the request, whatever HTTP says.
    """
    if facts.phase is RequestPhase.NOT_SENT:
        return Outcome.UNREACHABLE
    if facts.phase is RequestPhase.SENT:
        if facts.is_hung:
            return Outcome.SERVICE_ERROR
        if facts.is_late and (facts.is_repeatable or facts.is_cancelled):
            return Outcome.TIMEOUT
        return Outcome.UNREACHABLE if facts.is_repeatable else Outcome.UNKNOWN
    if facts.status is not None and not 200 <= facts.status < 300:
        by_status = outcome_of_status(facts.status, has_pause=facts.pause_s is not None, tool_errors=tool_errors)
        if by_status is not Outcome.TOOL_ERROR or not facts.is_rpc or facts.status in _TOO_LARGE:
            return by_status
        return Outcome.SERVICE_ERROR if facts.code is None else outcome_of_code(facts.code)
    if facts.code is not None:
        return outcome_of_code(facts.code)
    return Outcome.OUTPUT_REJECTED if facts.is_oversized else Outcome.SERVICE_ERROR


def outcome_of_status(status: int, *, has_pause: bool = False, tool_errors: Collection[int] = ()) -> Outcome:
    """The outcome of an HTTP status that is no success.

    Args:
        has_pause: whether the answer has a `Retry-After`.
        tool_errors: statuses that this service uses for a verdict on the request, whatever HTTP says.
    """
    if status in tool_errors:
        return Outcome.TOOL_ERROR
    if status == 429 or (status == 503 and has_pause):
        return Outcome.RATE_LIMITED
    return Outcome.TOOL_ERROR if status in _VERDICTS else Outcome.SERVICE_ERROR


def outcome_of_code(code: int) -> Outcome:
    """The outcome of a JSON-RPC error. Servers pass on the HTTP status of a service behind them as their own code."""
    if code in _STATUSES:
        return outcome_of_status(code)
    return Outcome.SERVICE_ERROR if code in _RPC_RESERVED and code not in _RPC_VERDICTS else Outcome.TOOL_ERROR
