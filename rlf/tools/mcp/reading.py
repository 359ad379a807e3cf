"""Asks an open session for everything that its server offers."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp import ClientSession, MCPError

from rlf.core.errors import RlfError
from rlf.tools.mcp.content import variables
from rlf.tools.mcp.offer import Entry, Listing, listed_schema

logger = logging.getLogger(__name__)

_MAX_PAGES = 100
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


async def read_listing(session: ClientSession) -> Listing:
    """Asks for every page of tools and of resources, where the server has some."""
    has = session.server_capabilities
    found: list[Entry] = []
    if has is None or has.tools is not None:
        found += map(_entry_of_tool, await _read_pages(session.list_tools, "tools"))
    if has is not None and has.resources is not None:
        found += map(_entry_of_resource, await _pages_if_any(session.list_resources, "resources"))
        found += map(_entry_of_template, await _pages_if_any(session.list_resource_templates, "resource_templates"))
    return Listing(tuple(_without_doubles(found)))


def _without_doubles(entries: Sequence[Entry]) -> list[Entry]:
    """Each tool once, as the server lists it first: calls name it, and the server answers as it does."""
    found: dict[tuple[str, str | None], Entry] = {}
    for entry in entries:
        first = found.setdefault((entry.name, entry.resource), entry)
        if first != entry:
            logger.warning("MCP server: it lists %r twice, not alike; the first is taken", entry.name)
    return list(found.values())


async def _pages_if_any(ask: Any, key: str) -> list[Any]:
    """The pages, of a server that has them: one with resources need not list templates, and its tools work without."""
    try:
        return await _read_pages(ask, key)
    except MCPError as error:
        if error.code == types.CONNECTION_CLOSED:
            raise
        if error.code != types.METHOD_NOT_FOUND:
            logger.warning("MCP server: its %s cannot be listed: %s", key.replace("_", " "), error.message)
        return []


async def _read_pages(ask: Any, key: str) -> list[Any]:
    found: list[Any] = []
    cursors: list[str | None] = [None]
    for _ in range(_MAX_PAGES):
        page = await ask(params=types.PaginatedRequestParams(cursor=cursors[-1]))
        items = getattr(page, key)
        if items and all(item in found for item in items):  # the same page again, whatever its cursor
            return found
        found += items
        if not page.next_cursor or page.next_cursor in cursors:
            return found
        cursors.append(page.next_cursor)
    raise RlfError(f"the server lists {key} on more than {_MAX_PAGES} pages")


def _entry_of_tool(tool: types.Tool) -> Entry:
    """A tool as the server describes it."""
    description = tool.description or tool.title or tool.name
    return Entry(tool.name, description, listed_schema(tool.input_schema, tool.meta), tool.output_schema)


def _entry_of_resource(resource: types.Resource) -> Entry:
    """A resource as a tool without arguments that reads it."""
    description = f"Read {resource.title or resource.name}. {resource.description or ''}".strip()
    return Entry(_to_tool_name(resource.name), description, _string_schema([]), resource=str(resource.uri))


def _entry_of_template(template: types.ResourceTemplate) -> Entry:
    """A family of resources as a tool that takes the template's variables."""
    description = f"Read {template.title or template.name}. {template.description or ''}".strip()
    return Entry(
        _to_tool_name(template.name),
        description,
        _string_schema(variables(template.uri_template)),
        resource=template.uri_template,
    )


def _to_tool_name(text: str) -> str:
    """A resource's name as a tool's name."""
    return _NO_NAME.sub("_", text).strip("_")[:64] or "resource"


def _string_schema(names: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}
