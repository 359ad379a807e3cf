"""Llama 3: tools whose names a bare object is read by."""

from rlf.types import ToolCall, ToolDescription

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = (ToolDescription("search", "Find a passage.", SCHEMA), ToolDescription("now", "The time.", {"type": "object"}))
CALL = ToolCall("search", {"query": "a"})
