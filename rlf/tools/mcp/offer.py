"""Tools of an MCP server, and resources to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rlf.core.identity import hash_json

_LISTED: Final = "rlf/inputSchema"
"""Key of a tool's `_meta`: its inputSchema as the server lists it, where the SDK would refuse that."""


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


def readable_tools(result: dict[str, Any]) -> dict[str, Any]:
    """A list of tools that the SDK takes: it refuses the whole of one in which a single tool breaks the protocol.

    What it would refuse of a tool stands where `listed_schema` finds it, for `rlf check` to judge.
    """
    tools = result.get("tools")
    if not isinstance(tools, list):
        return result
    named = [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    return {**result, "tools": [_readable_tool(tool) for tool in named]}


def listed_schema(schema: Mapping[str, Any], meta: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The inputSchema as the server lists it; one without a type for what is no mapping."""
    found = (meta or {}).get(_LISTED, schema)
    return found if isinstance(found, Mapping) else {"type": None}


def _readable_tool(tool: dict[str, Any]) -> dict[str, Any]:
    found = {key: tool[key] for key in ("name", "title", "description") if isinstance(tool.get(key), str)}
    schema = tool.get("inputSchema", {})
    if isinstance(schema, dict):  # nothing, or null, is how some servers write that there are no arguments
        schema = {"type": "object", **{key: value for key, value in schema.items() if value is not None}}
    if _is_plain(tool.get("outputSchema")):
        found["outputSchema"] = tool["outputSchema"]
    if _is_plain(schema):
        return {**found, "inputSchema": schema}
    return {**found, "inputSchema": {"type": "object"}, "_meta": {_LISTED: schema}}


def _is_plain(schema: Any) -> bool:
    """Whether a schema has the form that the protocol asks for at its root."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    has_properties = isinstance(properties, dict) and all(isinstance(one, dict | bool) for one in properties.values())
    has_required = isinstance(required, list) and all(isinstance(name, str) for name in required)
    return has_properties and has_required and isinstance(schema.get("$schema", ""), str)
