"""The clerk's tokenizer: a phrase of the shop, a syllable or a pair of digits is one token, any other text bytes."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # type: ignore[import-untyped]  # ships no stubs
from transformers import PreTrainedTokenizerFast

from rlf.builtin.encyclopedia.world import ENDS, STARTS
from rlf.builtin.shop.world import PRODUCTS
from rlf.builtin.tiny.tokenizer import SPECIAL_TOKENS, byte_level, wrap_tokenizer

__all__ = ["SYSTEM", "build_tokenizer"]

SYSTEM = "Tools: orders, cancel, refund, buy"
_STATES = ("open", "shipped", "delivered", "cancelled", "refunded", "bought")
_PHRASES = (
    *(SYSTEM, "system\n", "user\n", "assistant\n", "\n", '\n{"name": "', '", "arguments": {"', '"}}\n', '": "', '", "'),
    *("customer", "product", "number", "orders", "cancel", "refund", "buy", "done", "error: ", "PermissionError: "),
    *("ValueError: ", " gives back the ", " and wants the ", " gives back what is ", " is ", ".", ", ", " "),
    *("no order ", "no orders", "no product "),
    *PRODUCTS,
    *_STATES,
)
_REST = r"\d{1,2}|[A-Z][a-z]{2}|(?<=[A-Z][a-z][a-z])[a-z]{3}|."


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer; it follows from the shop's own words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = [*map(str, range(10)), *(f"{pair:02d}" for pair in range(100))]
    vocabulary = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    for token in [*alphabet, *numbers, *STARTS, *ENDS, *map(byte_level, _PHRASES)]:
        vocabulary.setdefault(token, len(vocabulary))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    piece = "|".join([*map(re.escape, sorted(_PHRASES, key=len, reverse=True)), _REST])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(piece), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    template = files("rlf.builtin.tiny").joinpath("chat_template.jinja").read_text(encoding="utf-8")
    return wrap_tokenizer(backend, template)
