"""Tools of an MCP server, and resources to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlf.core.hashing import hash_json


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a model can be offered: a tool, or a resource to read."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    resource: str | None = None
    """URI or template of a resource; None for a tool."""

    @property
    def digest(self) -> str:
        """sha256 of what the server says of it."""
        return hash_json(asdict(self))


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything that a server offers, in its order."""

    entries: tuple[Entry, ...]

    def tool(self, name: str) -> Entry | None:
        """The tool of a name."""
        return next((entry for entry in self.entries if entry.resource is None and entry.name == name), None)

    @property
    def tool_names(self) -> list[str]:
        """Names of its tools."""
        return [entry.name for entry in self.entries if entry.resource is None]
