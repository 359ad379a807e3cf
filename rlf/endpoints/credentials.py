"""Credentials of requests, by name: a key that is refused is reported by where it comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from rlf.core.redact import SECRET_HEADER

_MIN_LENGTH: Final = 6
"""Shorter values of variables stand in a header by chance."""


def describe_credentials(headers: Mapping[str, str], variable: str | None = None) -> str:
    """Where the key of a request comes from, in words without the key; empty where it has none.

    Args:
        headers: as they are sent, filled in from the environment.
        variable: the environment variable that is declared to hold the key.
    """
    secret = {name: value for name, value in headers.items() if SECRET_HEADER.search(name)}
    names = [variable] if variable is not None else _variables_in(secret)
    if names:
        return f"the key is that of the environment variable {' or '.join(names)}"
    return f"the key is in the header {', '.join(secret)}" if secret else ""


def _variables_in(headers: Mapping[str, str]) -> list[str]:
    """The variables whose values the headers hold."""
    known = {name: value for name, value in os.environ.items() if len(value) >= _MIN_LENGTH}
    return sorted(name for name, value in known.items() if any(value in text for text in headers.values()))
