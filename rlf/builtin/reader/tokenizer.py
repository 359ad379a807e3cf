"""The reader's tokenizer: a word it knows, a phrase of the layout, a syllable or a pair of digits is one token."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # type: ignore[import-untyped]  # ships no stubs
from transformers import PreTrainedTokenizerFast

from rlf.builtin.encyclopedia.world import ENDS, STARTS
from rlf.builtin.reader.words import WORDS
from rlf.builtin.tiny.tokenizer import SPECIAL_TOKENS, byte_level, wrap_tokenizer

__all__ = ["build_tokenizer"]

_PHRASES = (
    *(
        "system\nTools:\n- a ",
        ")\n- a ",
        "user\n",
        "assistant\n",
        "\n",
        '\n{"name": "',
        '", "arguments": {"',
        '": "',
        '"}}\n',
    ),
    *(
        "'s ",
        ": ",
        ", ",
        " and ",
        "What is ",
        "What are ",
        "?",
        "(",
        ")",
        "_",
        "error: ",
        "WrongKind: '",
        "UnknownName: no ",
    ),
    *("' is a ", "; this function takes the name of a ", " has the name '", "'; did you mean '", "unknown"),
)
_WORD = "(?<![A-Za-z])(?:" + "|".join(sorted(WORDS, key=len, reverse=True)) + ")(?![A-Za-z])"
_REST = r"\d{1,2}|[A-Z][a-z]{2}|(?<=[A-Z][a-z][a-z])[a-z]{3}|."


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer; no seed, no corpus file."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = [*map(str, range(10)), *(f"{pair:02d}" for pair in range(100))]
    vocabulary = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    for token in [*alphabet, *numbers, *STARTS, *ENDS, *map(byte_level, _PHRASES), *WORDS]:
        vocabulary.setdefault(token, len(vocabulary))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    piece = "|".join([*map(re.escape, sorted(_PHRASES, key=len, reverse=True)), _WORD, _REST])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(piece), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    template = files("rlf.builtin.reader").joinpath("chat_template.jinja").read_text(encoding="utf-8")
    return wrap_tokenizer(backend, template)
