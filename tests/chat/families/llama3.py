"""Llama 3: its special tokens."""

from rlf.types import ToolCall, ToolDescription

SPECIAL = [
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
    "<|python_tag|>",
]
PLAIN = ["  ", "中"]
EOS = "<|eot_id|>"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = (ToolDescription("search", "Find a passage.", SCHEMA), ToolDescription("now", "The time.", {"type": "object"}))
CALL = ToolCall("search", {"query": "a"})
