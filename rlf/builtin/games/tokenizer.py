"""The tokenizer of the games' model: a phrase, syllable or pair of digits of theirs is one token, the rest bytes."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]  # no stubs
from transformers import PreTrainedTokenizerFast

from rlf.builtin.bisect import demonstrations as bisect
from rlf.builtin.compose import demonstrations as compose
from rlf.builtin.encyclopedia.world import ENDS, STARTS
from rlf.builtin.rooms import demonstrations as rooms
from rlf.builtin.tiny.tokenizer import END_OF_TEXT, END_OF_TURN, SPECIAL_TOKENS, byte_level

__all__ = ["build_tokenizer"]

_CHAT_PHRASES = ("system\n", "user\n", "assistant\n", "\n", '"}}\n', "}}\n", " and ", "Error: ")
_OTHERS = r"\d{1,2}|[A-Z][a-z]{2}|(?<=[A-Z][a-z][a-z])[a-z]{3}|[^\d]"


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer; it follows from the games' own phrases."""
    phrases = list(dict.fromkeys([*_CHAT_PHRASES, *rooms.PHRASES, *bisect.PHRASES, *compose.PHRASES]))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = [*map(str, range(10)), *(f"{pair:02d}" for pair in range(100))]
    vocabulary = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    for token in [*alphabet, *numbers, *STARTS, *ENDS, *map(byte_level, phrases)]:
        vocabulary.setdefault(token, len(vocabulary))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    longest_first = sorted(phrases, key=len, reverse=True)
    piece = "|".join([*map(re.escape, longest_first), _OTHERS])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(piece), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL_TOKENS[:3]))
    backend.add_tokens(list(SPECIAL_TOKENS[3:]))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers is untyped here
        tokenizer_object=backend,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=512,
        clean_up_tokenization_spaces=False,
        chat_template=files("rlf.builtin.tiny").joinpath("chat_template.jinja").read_text(encoding="utf-8"),
    )
