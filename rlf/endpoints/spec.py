"""Servers in the YAML. Model and agent tools and judge terms share the keys of an endpoint."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import Field, field_validator

from rlf.core import RlfError
from rlf.core.addresses import Headers, check_host, header_value
from rlf.core.kinds import StrictModel, wrong_value
from rlf.core.redact import SECRET_HEADER, SECRET_NAME, clean
from rlf.endpoints.attribution import KEY_REFUSED
from rlf.types import Outcome

# Credentials of requests, by name: a key that is refused is reported by where it comes from.

_MIN_LENGTH: Final = 6
"""Shorter values of variables stand in a header by chance."""


def describe_credentials(headers: Mapping[str, str], variable: str | None = None) -> str:
    """Where the key of a request comes from, in words without the key; empty where it has none.

    Args:
        headers: as they are sent, filled in from the environment.
        variable: the environment variable that is declared to hold the key.
    """
    secret = {name: value for name, value in headers.items() if SECRET_HEADER.search(name)}
    known = {name: value for name, value in os.environ.items() if len(value) >= _MIN_LENGTH}
    held = sorted(name for name, value in known.items() if any(value in text for text in secret.values()))
    names = [variable] if variable is not None else held
    if names:
        return f"the key is that of the environment variable {' or '.join(names)}"
    return f"the key is in the header {', '.join(secret)}" if secret else ""


# Usage that an answer reports, read with suspicion: no count and no cost that cannot be true is counted.
#
# Servers name things differently: OpenAI has `prompt_tokens_details.cached_tokens`, and `input_tokens` in its newer
# API; DeepSeek `prompt_cache_hit_tokens`; OpenRouter its own `cost` in US dollars.

_MAX_TOKENS: Final = 10_000_000
"""Of one request: a hundred times the longest context there is for sale."""
_MAX_COST_USD: Final = 1_000.0
"""Of one request."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of requests."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    cached_tokens: int = 0
    """Those of the prompt that the server had in its cache."""

    def by_unit(self) -> dict[str, float]:
        """As `ToolOutput.usage` has it; a cost and cached tokens of nothing are left out."""
        usage: dict[str, float] = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens}
        rare = {"cached_tokens": self.cached_tokens, "cost_usd": self.cost_usd}
        return usage | {unit: value for unit, value in rare.items() if value}


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The numbers of one answer, before prices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    """The server's own; None where it names none."""
    num_images: int = 0
    is_absurd: bool = False
    """Whether it names a number that cannot be true, which then counts as 0."""
    is_known: bool = False
    """Whether it names any number, or holds images."""


def read_usage(answer: Mapping[str, Any]) -> UsageReport:
    """The usage that an answer reports."""
    items = answer.get("data")
    num_images = len(items) if isinstance(items, list) else 0
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return UsageReport(num_images=num_images, is_known=num_images > 0)
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
    reported = [
        usage.get("prompt_tokens", usage.get("input_tokens")),
        usage.get("completion_tokens", usage.get("output_tokens")),
        cached,
    ]
    found = [_read_count(value) for value in reported]
    prompt, completion, cached_tokens = found
    cost: Any = usage.get("cost")
    cost_usd = float(cost) if type(cost) in (int, float) and 0 <= cost <= _MAX_COST_USD else None
    absurd = any(value is not None and number is None for value, number in zip(reported, found, strict=True))
    absurd |= cost is not None and cost_usd is None
    too_many = (cached_tokens or 0) > (prompt or 0)
    return UsageReport(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        cached_tokens=0 if too_many else cached_tokens or 0,
        cost_usd=cost_usd,
        num_images=num_images,
        is_absurd=absurd or too_many,
        is_known=num_images > 0 or any(value is not None for value in (*reported, cost)),
    )


def usage_of_error(body: bytes) -> UsageReport:
    """The usage that the body of an error reports."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return UsageReport()
    return read_usage(answer) if isinstance(answer, dict) else UsageReport()


def _read_count(value: Any) -> int | None:
    """A number of tokens; None for what is none. Some servers write whole numbers as floats."""
    is_count = type(value) in (int, float) and 0 <= value <= _MAX_TOKENS and value == int(value)
    return int(value) if is_count else None


_URL = re.compile(r"https?://[^/\s]+(/\S*)?")
# `user:password@` of an address, which logs and messages must not show.
_USER = re.compile(r"//[^/@]*@")


class Redirects(StrEnum):
    """Where a request may be sent on to."""

    NONE = "none"
    """A redirect is an error."""
    SAME_HOST = "same_host"
    """Followed within the host of the request."""
    ANY = "any"
    """Followed to any public host, without the declared headers once it leaves the host of the request."""


class Prices(StrictModel):
    """Prices of the host; cost is counted from these, where an answer does not name its own `cost`."""

    prompt_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """US dollars for a million prompt tokens."""
    cached_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """US dollars for a million prompt tokens that the server had in its cache; null: as other prompt tokens."""
    completion_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """US dollars for a million sampled tokens."""
    image_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """US dollars for an image that was made."""

    def of(self, reported: UsageReport) -> Usage:
        """The usage of an answer, with its cost."""
        cached_usd = self.prompt_usd if self.cached_usd is None else self.cached_usd
        tokens_usd = (
            (reported.prompt_tokens - reported.cached_tokens) * self.prompt_usd
            + reported.cached_tokens * cached_usd
            + reported.completion_tokens * self.completion_usd
        )
        priced_usd = tokens_usd / 1e6 + reported.num_images * self.image_usd
        cost_usd = priced_usd if reported.cost_usd is None else reported.cost_usd
        return Usage(reported.prompt_tokens, reported.completion_tokens, cost_usd, reported.cached_tokens)


class EndpointSpec(StrictModel):
    """A model behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, `rlf serve`, a hosted one."""

    url: str
    """What stands before `/chat/completions`, for instance `http://localhost:8000/v1`."""
    model: str = Field(min_length=1)
    """The server's name of the model."""
    api_key_env: str | None = None
    """Environment variable that holds the key; it is sent as `Authorization: Bearer ...` and never stored."""
    headers: Headers = Field({})
    """Further headers of each request."""
    max_concurrency: int = Field(default=64, ge=1)
    """Requests that are under way at once; the others wait."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Requests begun within any minute; null: as many as there are."""
    timeout_s: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Time of one request; after it another endpoint, or the same one, is asked again while there is time."""
    prices: Prices = Prices()

    @field_validator("url")
    @classmethod
    def _is_a_base(cls, url: str) -> str:
        if not _URL.fullmatch(url):
            raise wrong_value(f"got {url!r}; expected `http://HOST:PORT/v1`")
        try:
            check_host(url)
        except ValueError as fault:
            raise wrong_value(f"got {url!r}; expected `http://HOST:PORT/v1`: {fault}") from fault
        if (base := re.sub(r"/(chat/completions|completions|responses|messages)/?$", "", url)) != url:
            raise wrong_value(f"got {url!r}, the address of one of its calls; write the one before it, `{base}`")
        return url.rstrip("/")

    @field_validator("api_key_env")
    @classmethod
    def _is_kept_secret(cls, name: str | None) -> str | None:
        if name is not None and not SECRET_NAME.search(name):
            raise wrong_value(
                f"got {name!r}; expected a name with KEY, TOKEN, SECRET or PASSWORD, which is never stored"
            )
        return name

    @property
    def place(self) -> str:
        """The address for logs and messages, without the user and password that it may hold."""
        return _USER.sub("//", self.url)

    @property
    def credentials(self) -> str:
        """Where the key comes from, in words without the key; empty for an endpoint without one."""
        return describe_credentials(self.headers, self.api_key_env)

    def request_headers(self) -> dict[str, str]:
        """The headers of each request, the key among them. Raises RlfError where the environment lacks the key."""
        headers = {"Content-Type": "application/json", **self.headers}
        if self.api_key_env is not None:
            if not os.environ.get(self.api_key_env, "").strip():
                raise RlfError(
                    f"endpoint {self.place}: the environment variable {self.api_key_env} is not set. Set it."
                )
            try:
                headers["Authorization"] = f"Bearer {header_value(os.environ[self.api_key_env])}"
            except ValueError as fault:
                what = f"the value of {self.api_key_env} cannot be sent: {fault}"
                raise RlfError(f"endpoint {self.place}: {what}. Set it to one key.") from None
        return headers


class SamplingSpec(StrictModel):
    """How an endpoint samples; what is null is left to the server."""

    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """0 takes the likeliest token."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Smallest set of likeliest tokens whose probability reaches this."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest completion."""
    seed: int | None = None
    """Repeats what is drawn, where the server can do so."""
    stop: tuple[str, ...] = ()
    """Strings before which sampling stops."""
    extra: dict[str, Any] = Field({})
    """Further keys of the request's body, as the server names them."""

    def body(self) -> Mapping[str, Any]:
        """The keys of a request's body."""
        values = self.model_dump(exclude={"extra"}, exclude_none=True, mode="json")
        return {**{key: value for key, value in values.items() if value != []}, **self.extra}


# How a request fails: a typed outcome and words that hold no address path, header or key.
#
# Which outcome a status means is decided in `rlf.endpoints.attribution`.

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

    @property
    def is_unusable(self) -> bool:
        """Whether an answer makes no sense, or refuses more than this request: the key, the model, the address."""
        return self.status == 200 or (self.outcome is Outcome.SERVICE_ERROR and not self.may_pass)


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
    shown = " ".join(what.split()).removesuffix(":")  # a page has many lines
    return EndpointFailure(Outcome.SERVICE_ERROR, f"the endpoint answered with {shown}", status=200)


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
