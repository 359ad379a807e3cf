"""Kimi K2: names that an id can hold."""

from hypothesis import strategies as st

from rlf.chat.repair import read_stand_in
from rlf.types import ToolCall

_family = read_stand_in("kimi_k2")
_MARKS = [*_family.special, *_family.plain, "  ", "中"]
_texts = st.text(max_size=12) | st.sampled_from([*_MARKS, '"', "{", "}"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_names = st.from_regex(r"[A-Za-z_][\w.\-]{0,10}", fullmatch=True)
CALLS = st.builds(ToolCall, _names, st.dictionaries(_texts, _json, max_size=4))
