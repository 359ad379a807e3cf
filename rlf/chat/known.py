"""Chat formats by name, and what is known of all of them without loading any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rlf.core.identity import remember
from rlf.core.registry import kind_names, shipped_names

PACKAGE = "rlf.chat.formats"

T = TypeVar("T")


def format_names() -> list[str]:
    """The names of all formats."""
    return kind_names(PACKAGE)


def are_own() -> bool:
    """Whether rlf brings all formats: what is remembered holds as long as its own files do, and no other package's."""
    return format_names() == shipped_names(PACKAGE)


def remember_of_formats(key: Any, find: Callable[[], T]) -> T:
    """What `find` finds out from all formats, which it has to load; a JSON value, remembered where they are all own."""
    return remember(key, find) if are_own() else find()
