"""The base of every model that reads or writes what lies outside of Python."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


class StrictModel(BaseModel):
    """Frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def wrong_value(reason: str) -> PydanticCustomError:
    """The error of a validator whose whole text is the reason: what was there, what is allowed, what to write."""
    return PydanticCustomError("wrong_value", "{reason}", {"reason": reason})


def check_host(url: str) -> None:
    """Raises ValueError for a URL without a host, or with a host or port that cannot exist."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("it names no host")
    parts.hostname.encode("idna")
    if parts.port == 0:
        raise ValueError("a port is at least 1")


def _with_host(url: str) -> str:
    try:
        check_host(url)
    except ValueError as fault:
        raise wrong_value(f"got {url!r}; expected `http://HOST:PORT`: {fault}") from fault
    return url


WebAddress = Annotated[str, Field(pattern=r"^https?://"), AfterValidator(_with_host)]
"""An address of HTTP or HTTPS whose host can exist."""
