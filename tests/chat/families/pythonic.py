"""Llama 4: names that Python can write."""

import keyword

from hypothesis import strategies as st

from rlf.chat.repair import read_stand_in
from rlf.types import ToolCall

_family = read_stand_in("pythonic")
_MARKS = [*_family.special, *_family.plain, "  ", "中"]
_texts = st.text(max_size=12) | st.sampled_from([*_MARKS, '"', "'", "]", ")", "\\", "\\d", "\n", '"""'])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_names = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name != "__debug__"
)
_dotted = st.lists(_names, min_size=1, max_size=3).map(".".join)
CALLS = st.builds(ToolCall, _dotted, st.dictionaries(_names, _json, max_size=4))
