"""The tokenizer of the games' model: a phrase, syllable or pair of digits of theirs is one token, the rest bytes."""

from __future__ import annotations

from functools import cache

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.bisect import demonstrations as bisect
from benchmarks.embedded.compose import demonstrations as compose
from benchmarks.embedded.rooms import demonstrations as rooms
from benchmarks.embedded.tiny.tokenizer import NUMBERS, cut_at, make_tokenizer
from rlf.builtin.encyclopedia.names import ENDS, STARTS

_CHAT_PHRASES = ("system\n", "user\n", "assistant\n", "\n", '"}}\n', "}}\n", " and ", "Error: ")
_REST = r"\d{1,2}|[A-Z][a-z]{2}|(?<=[A-Z][a-z][a-z])[a-z]{3}|[^\d]"


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer; it follows from the games' own phrases."""
    phrases = list(dict.fromkeys([*_CHAT_PHRASES, *rooms.PHRASES, *bisect.PHRASES, *compose.PHRASES]))
    return make_tokenizer([*NUMBERS, *STARTS, *ENDS, *phrases], cut_at(phrases, _REST), max_length=512)
