"""Chat formats by name, and which of them a template is of: known without loading the formats."""

from __future__ import annotations

from rlf.core.identity import remember
from rlf.core.registry import kind_names, shipped_names

PACKAGE = "rlf.chat.formats"


def format_names() -> list[str]:
    """The names of all formats."""
    return kind_names(PACKAGE)


def matching_formats(template: str) -> dict[str, str]:
    """The formats that a chat template is of, each with the reason.

    Every format has to be loaded to find them: of a template that was seen before, the answer is remembered.
    """

    def find() -> dict[str, str]:
        from rlf.chat.format import FORMATS

        found = {name: FORMATS.get(name).matches(template) for name in FORMATS.names()}
        return {name: reason for name, reason in found.items() if reason is not None}

    return remember(["formats", template], find) if are_own() else find()


def are_own() -> bool:
    """Whether rlf brings all formats: what is remembered holds as long as its own files do, and no other package's."""
    return format_names() == shipped_names(PACKAGE)
