"""The clerk's tokenizer: a phrase of the shop, a syllable or a pair of digits is one token, any other text bytes."""

from __future__ import annotations

from functools import cache

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.tiny.tokenizer import NUMBERS, cut_at, make_tokenizer
from rlf.builtin.encyclopedia.names import ENDS, STARTS
from rlf.builtin.shop.world import PRODUCTS

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
    return make_tokenizer([*NUMBERS, *STARTS, *ENDS, *_PHRASES], cut_at(_PHRASES, _REST))
