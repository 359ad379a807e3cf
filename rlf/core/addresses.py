"""Addresses and headers of HTTP, as fields of declarations."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from rlf.core.kinds import wrong_value


def check_host(url: str) -> None:
    """Raises ValueError for a URL without a host, or with a host or port that cannot exist."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("it names no host")
    parts.hostname.encode("idna")
    if parts.port == 0:
        raise ValueError("a port is at least 1")


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""


# All control characters but the tab.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def header_value(text: str) -> str:
    """The text of a header without the space around it, which is no part of it: a key from a file ends in a line break.

    Raises:
        ValueError: no header can hold the text; the message has nothing of it.
    """
    value = text.strip()
    if _CONTROL.search(value):
        raise ValueError("it holds a line break or another control character, and a header is one line")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None
    return value


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    found = {}
    for name, text in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise wrong_value(f"got a header named {name!r}; expected letters, digits and `-`, e.g. `X-Api-Key`")
        try:
            found[name] = header_value(text)
        except ValueError as fault:
            raise wrong_value(f"the value of the header {name!r} cannot be sent: {fault}. Correct it") from None
    return found


Headers = Annotated[dict[str, str], AfterValidator(_check_headers)]
"""Headers of requests: names that HTTP takes, and values of one line."""


def _with_host(url: str) -> str:
    try:
        check_host(url)
    except ValueError as fault:
        raise wrong_value(f"got {url!r}; expected `http://HOST:PORT`: {fault}") from fault
    return url


WebAddress = Annotated[str, Field(pattern=r"^https?://"), AfterValidator(_with_host)]
"""An address of HTTP or HTTPS whose host can exist."""
