"""ReAct on a chat model: labels at the beginning of lines."""

from hypothesis import strategies as st

from rlf.apps.families.plain import neutral
from rlf.apps.families.react import RESULT_LABELS
from rlf.types import ToolCall, ToolDescription

_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = (ToolDescription("search", "Find a passage.", _SCHEMA), ToolDescription("add", "Add.", {"type": "object"}))
SAY = "Thought: {}\n"
ANSWER = "Final Answer: {}"

_texts = st.text(max_size=12) | st.sampled_from(
    ["\nObservation:", "\nAction: a", "Final Answer:", "</think>", '"', "}"]
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(
    ToolCall, st.from_regex(r"[A-Za-z_][\w.\-]{0,10}", fullmatch=True), st.dictionaries(_texts, _json, max_size=4)
)


def SHOWN(result):
    return neutral(result, RESULT_LABELS)
