"""How a request fails: a typed outcome and words that hold no address path, header or key.

Which outcome a status means is decided in `rlf.endpoints.attribution`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from rlf.core.text import clean
from rlf.endpoints.attribution import KEY_REFUSED
from rlf.types import Outcome

if TYPE_CHECKING:
    from rlf.endpoints.spec import EndpointSpec

_NO_MODEL: Final = re.compile(
    r"model_not_found|invalid_model|\b(invalid|unknown|unsupported|valid|no such|unable to access) model\b"
    r"|\bmodel\b.{0,120}\b(not exist|not found)\b",
    re.IGNORECASE,
)
"""Words of hosts that answer with 400 where OpenAI and vLLM answer with 404."""
_LASTING: Final = KEY_REFUSED | {402, 404, 405, 406, 407, 415}
"""Statuses of a service error that the same request gets again; so does one of a redirect that is not followed."""
_REDIRECTS: Final = range(300, 400)


class EndpointFailure(Exception):
    """A request without a usable answer. Every failure of this package is one of these."""

    def __init__(
        self,
        outcome: Outcome,
        text: str,
        *,
        retry_after_s: float | None = None,
        status: int | None = None,
        unit: str | None = None,
        body: bytes = b"",
    ) -> None:
        text = clean(text)  # words of a server, whose reason phrase need not be UTF-8
        super().__init__(text)
        self.outcome = outcome
        self.text = text
        self.retry_after_s = retry_after_s
        """Pause that the host asks for before the next request."""
        self.status = status
        """HTTP status of the answer, 200 for one that makes no sense; None when there is none, or it is the model's."""
        self.unit = unit
        """What such failures are counted as in the usage of a call; None for those that its outcome distinguishes."""
        self.body = body
        """Of an answer with a status of an error; it may report what the request used up."""

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later: the fault is the host's, and not a verdict on the request."""
        if self.outcome is Outcome.SERVICE_ERROR:
            return self.status not in _LASTING and self.status not in _REDIRECTS
        return self.outcome in (Outcome.UNREACHABLE, Outcome.RATE_LIMITED, Outcome.TIMEOUT)


def request_failure(failure: EndpointFailure, spec: EndpointSpec) -> EndpointFailure:
    """The failure of a request to a model: an unknown model is its declaration's fault, a refused key has a name."""
    if failure.status in KEY_REFUSED:
        text = f"{failure.text} ({spec.credentials or 'no `api_key_env` is given'})"
        return EndpointFailure(failure.outcome, text, status=failure.status)
    if failure.status == 404 or (failure.status in (400, 422) and _NO_MODEL.search(failure.text)):
        text = f"the endpoint has no model {spec.model!r}, or nothing at this `url`: {failure.text}"
        return EndpointFailure(Outcome.SERVICE_ERROR, text, status=404)
    return failure


def unusable(what: str) -> EndpointFailure:
    """The failure of an answer that arrived and cannot be used."""
    return EndpointFailure(Outcome.SERVICE_ERROR, f"the endpoint answered with {what}", status=200)


def retry_after_s(header: str | None) -> float | None:
    """The pause that a `Retry-After` header asks for, in seconds or as a date; None where it says nothing sensible."""
    if header is None:
        return None
    if header.strip().isascii() and header.strip().isdigit():
        return float(header)
    try:
        then = parsedate_to_datetime(header)
        then = then if then.tzinfo else then.replace(tzinfo=UTC)
        return max((then - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
