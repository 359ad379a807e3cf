"""Servers in the YAML. Model and agent tools and judge terms share the keys of an endpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator

from rlf.core import RlfError
from rlf.core.models import Headers, StrictModel, check_host, header_value, wrong_value
from rlf.core.redact import SECRET_NAME
from rlf.endpoints.credentials import describe_credentials
from rlf.endpoints.usage import Reported, Usage

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

    def of(self, reported: Reported) -> Usage:
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
    """A model behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, `rlf judge serve`, a hosted one."""

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
