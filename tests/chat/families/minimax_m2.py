"""MiniMax M2: calls whose values its bare text can hold."""

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
    },
    "required": ["query"],
}
TOOLS = (ToolDescription("search", "Find a passage.", SCHEMA), ToolDescription("now", "The time.", {"type": "object"}))

_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12)
)
_json = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner)),
    max_leaves=5,
)
_text = st.text(max_size=30) | st.sampled_from(
    [
        "</minimax:tool_call>",
        "</parameter>",
        "a</parameter>b",
        "<minimax:tool_call>",
        "</think>",
        "<think>x</think>",
        "42",
        "null",
        '"a"',
        " a\n",
    ]
)
_known = st.fixed_dictionaries(
    {"query": _text},
    optional={
        "count": st.integers(),
        "exact": st.booleans(),
        "fields": st.lists(_json, max_size=3),
        "filter": st.dictionaries(st.text(max_size=6), _json, max_size=3),
        "limit": st.none() | st.integers() | _text,
    },
)
_unknown = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), _json | _text, max_size=3)
CALLS = st.builds(ToolCall, st.just("search"), _known) | st.builds(
    ToolCall, st.from_regex(r"[A-Za-z_][\w.\-]{0,10}", fullmatch=True).filter(lambda name: name != "search"), _unknown
)
