"""Qwen3-Coder: calls whose values its bare text can hold."""

from hypothesis import strategies as st

from rlf.types import ToolCall, ToolDescription

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "count": {"type": "integer"},
        "exact": {"type": "boolean"},
        "fields": {"type": "array"},
        "filter": {"type": "object"},
        "limit": {"type": ["integer", "null", "string"]},
        "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["query"],
}
TOOLS = (ToolDescription("search", "Find a passage.", SCHEMA), ToolDescription("now", "The time.", {"type": "object"}))

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
_tags = ["</tool_call>", "</parameter>", "a</parameter>b", "<tool_call>", "</function>", "</think>", "<think>x</think>"]
_text = st.text(max_size=30) | st.sampled_from([*_tags, "42", "null", "True", '"a"', " a\n", "\n", ""])
_free = _text | st.sampled_from(
    ["</parameter>\n</function>", "<parameter=x>", "<function=", '"</parameter><parameter=']
)
_known = st.fixed_dictionaries(
    {"query": _text},
    optional={
        "count": st.integers(),
        "exact": st.booleans(),
        "fields": st.lists(_json | _free, max_size=3),
        "filter": st.dictionaries(st.text(max_size=6), _json, max_size=3),
        "limit": st.none() | st.integers() | _free,
        "unit": st.none() | _free,
    },
)
_keys = st.from_regex(r"[a-z_ \"'é]{1,8}", fullmatch=True)
CALLS = st.builds(ToolCall, st.just("search"), _known) | st.builds(
    ToolCall,
    st.from_regex(r"[A-Za-z_][\w.\-]{0,10}", fullmatch=True).filter(lambda name: name != "search"),
    st.dictionaries(_keys, _json | _free, max_size=3),
)
