"""Search-R1 on a chat model: one search tool, queries that its tags can hold."""

from hypothesis import strategies as st

from rlf.apps.families.plain import neutral
from rlf.apps.families.search_r1 import RESULT_TAGS
from rlf.types import ToolCall, ToolDescription

_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = (ToolDescription("search", "Find a passage.", _SCHEMA),)
ANSWER = "<answer>{}</answer>"

_queries = st.text(min_size=1, max_size=30).map(str.strip).filter(bool) | st.sampled_from(
    ["a < b", "</b>", "<tool_call>"]
)
CALLS = st.builds(ToolCall, st.just("search"), st.fixed_dictionaries({"query": _queries}))


def SHOWN(result):
    return neutral(result, RESULT_TAGS)
