"""The reader's tokenizer: a word it knows, a phrase of the layout, a syllable or a pair of digits is one token."""

from __future__ import annotations

from functools import cache

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.reader.words import WORDS
from benchmarks.embedded.tiny.tokenizer import NUMBERS, cut_at, make_tokenizer
from rlf.builtin.encyclopedia.names import ENDS, STARTS

_PHRASES = (
    *("system\nTools:\n- a ", ")\n- a ", "user\n", "assistant\n", "\n", '\n{"name": "', '", "arguments": {"', '": "'),
    *('"}}\n', "'s ", ": ", ", ", " and ", "What is ", "What are ", "?", "(", ")", "_", "error: ", "WrongKind: '"),
    "UnknownName: no ",
    *("' is a ", "; this function takes the name of a ", " has the name '", "'; did you mean '", "unknown"),
)
_WORD = "(?<![A-Za-z])(?:" + "|".join(sorted(WORDS, key=len, reverse=True)) + ")(?![A-Za-z])"
_REST = r"\d{1,2}|[A-Z][a-z]{2}|(?<=[A-Z][a-z][a-z])[a-z]{3}|."


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer; no seed, no corpus file."""
    texts = [*NUMBERS, *STARTS, *ENDS, *_PHRASES, *WORDS]
    return make_tokenizer(texts, cut_at(_PHRASES, f"{_WORD}|{_REST}"), template_of="reader")
