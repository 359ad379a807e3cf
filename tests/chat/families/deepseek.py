"""DeepSeek: names that its heads can hold; a result lets the model speak without a word."""

from hypothesis import strategies as st

from rlf.chat.repair import read_stand_in
from rlf.types import ToolCall

SPEAKS = False
_family = read_stand_in("deepseek")
_MARKS = [*_family.special, *_family.plain, "  ", "中"]
_texts = st.text(max_size=12) | st.sampled_from([*_MARKS, "```", "\n```"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(
    ToolCall, st.from_regex(r"[A-Za-z_][\w.\-]{0,10}", fullmatch=True), st.dictionaries(_texts, _json, max_size=4)
)
