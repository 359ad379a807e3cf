"""Text to tokens in two kinds: template text, where markup becomes special tokens, and data, where nothing can.

Invariant: no id of an added token (`<|im_end|>`, `<tool_call>`, ...) is ever in what `encode_data` returns, so no byte
of a question or of a tool result can end a turn, open a role or write a call. The decoded text is unchanged.
A tokenizer is taken as it is when first seen: adding tokens to it afterwards goes unnoticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rlf.core import RlfError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SURROGATE = re.compile("[\ud800-\udfff]")
_PROBE = " a\n\n é 中 <|im_end|>b  <tool_call>c\t"


@dataclass(frozen=True, slots=True)
class _Markup:
    """The added tokens of one tokenizer."""

    ids: frozenset[int]
    start: re.Pattern[str]
    """Matches, with no width, wherever the text of an added token begins."""


def encode_template(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Tokens of text that rlf or the model's template wrote; special tokens become their ids."""
    return list(_encode_template(tokenizer, text))


def encode_data(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Tokens of text from outside, none of them an added token; lone surrogates become U+FFFD.

    Raises RlfError for a single character that the tokenizer only knows as a special token.
    """
    text = _SURROGATE.sub("\ufffd", text)
    markup = _markup(tokenizer)
    tokens = _encode(tokenizer, text)
    if not markup.ids.isdisjoint(tokens):
        tokens = [token for piece in _cut(text, markup.start) for token in _encode_piece(tokenizer, piece, markup.ids)]
    assert markup.ids.isdisjoint(tokens), f"data became special tokens: {sorted(markup.ids.intersection(tokens))}"
    return tokens


def check_lossless(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises RlfError for a tokenizer that changes text when it is encoded in pieces."""
    letters = [t.content for t in tokenizer.added_tokens_decoder.values() if len(t.content) == 1 and not t.special]
    probe = _PROBE + "".join(letters)
    decoded = tokenizer.decode(encode_data(tokenizer, probe), clean_up_tokenization_spaces=False)
    if decoded != probe:
        raise RlfError(
            f"model.path: the tokenizer turns {probe!r} into {decoded!r}; expected the same text back. "
            "Use a model with a byte-level tokenizer (Qwen, Llama 3, GPT-2, ...)."
        )


@lru_cache(maxsize=4096)
def _encode_template(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    return tuple(_encode(tokenizer, text))


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    return tokens


def _encode_piece(tokenizer: PreTrainedTokenizerBase, piece: str, forbidden: frozenset[int]) -> list[int]:
    """Encodes text that holds no added token as written; a normaliser may still make one, so it is looked for."""
    tokens = _encode(tokenizer, piece)
    if forbidden.isdisjoint(tokens):
        return tokens
    if len(piece) == 1:
        raise RlfError(
            f"the tokenizer knows the character {piece!r} of the data only as a special token; "
            "take it out of the data, or use a model with a byte-level tokenizer"
        )
    return [token for character in piece for token in _encode_piece(tokenizer, character, forbidden)]


def _cut(text: str, start: re.Pattern[str]) -> list[str]:
    """Cuts one character into every added token, nested and overlapping ones too.

    Each occurrence begins somewhere and is cut right after its first character, so no piece holds a whole one.
    """
    cuts = [match.start() + 1 for match in start.finditer(text)]
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]


@lru_cache(maxsize=16)
def _markup(tokenizer: PreTrainedTokenizerBase) -> _Markup:
    """Every added token but plain single characters, which are data (some vocabularies add a few letters)."""
    added = {i: t for i, t in tokenizer.added_tokens_decoder.items() if t.special or len(t.content) > 1}
    texts = sorted({token.content for token in added.values() if len(token.content) > 1})
    pattern = "|".join(re.escape(text) for text in texts) or "(?!)"
    return _Markup(frozenset(added), re.compile(f"(?={pattern})"))
