"""Fenced code on a chat model: one tool that runs code."""

from hypothesis import strategies as st

from rlf.types import ToolCall, ToolDescription

_SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
TOOLS = (ToolDescription("python", "Run code.", _SCHEMA),)
CALL = ToolCall("python", {"code": "print(1)"})
SAY = "{}\n"

_codes = st.text(min_size=1, max_size=40).filter(str.strip) | st.sampled_from(
    ["```", "x = '''\n```\n'''", "`` ` ````\n", "  if x:\n", "</think>", "<think>", "\n\na\n"]
)
CALLS = st.builds(ToolCall, st.just("python"), st.fixed_dictionaries({"code": _codes}))
