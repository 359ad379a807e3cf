"""DeepSeek: its special tokens, and names that its heads can hold; a result lets the model speak without a word."""

from hypothesis import strategies as st

from rlf.types import ToolCall

SPECIAL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]
PLAIN = [
    *("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>"),
    *("<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "  ", "中"),
]
EOS = "<｜end▁of▁sentence｜>"
SPEAKS = False
_texts = st.text(max_size=12) | st.sampled_from([*PLAIN, EOS, "```", "\n```"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(
    ToolCall, st.from_regex(r"[A-Za-z_][\w.\-]{0,10}", fullmatch=True), st.dictionaries(_texts, _json, max_size=4)
)
