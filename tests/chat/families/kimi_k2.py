"""Kimi K2: its special tokens, and names that an id can hold."""

from hypothesis import strategies as st

from rlf.types import ToolCall

SPECIAL = [
    *("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
]
PLAIN = ["<think>", "</think>", "  ", "中"]
EOS = "[EOS]"

_texts = st.text(max_size=12) | st.sampled_from([*SPECIAL, *PLAIN, '"', "{", "}"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_names = st.from_regex(r"[A-Za-z_][\w.\-]{0,10}", fullmatch=True)
CALLS = st.builds(ToolCall, _names, st.dictionaries(_texts, _json, max_size=4))
