"""Tokens as the protocol shows them: text, bytes, log-probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# SentencePiece writes a byte that is no character as `<0x0A>`.
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@lru_cache(maxsize=65536)
def token_text(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """The text of one token; a part of a character is U+FFFD."""
    return str(tokenizer.decode([token]))


@lru_cache(maxsize=65536)
def token_bytes(tokenizer: PreTrainedTokenizerBase, token: int) -> tuple[int, ...]:
    """The bytes of one token, those of a part of a character too."""
    text = token_text(tokenizer, token)
    if "\ufffd" not in text:
        return tuple(text.encode("utf-8", "replace"))
    piece = str(tokenizer.convert_ids_to_tokens(token))
    if found := _BYTE.fullmatch(piece):
        return (int(found[1], 16),)
    letters = _byte_letters()
    if all(letter in letters for letter in piece):
        return tuple(letters[letter] for letter in piece)
    return tuple(text.encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def _byte_letters() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for: GPT-2's table, printable bytes as themselves."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


def show_logprobs(
    tokenizer: PreTrainedTokenizerBase,
    tokens: Sequence[int],
    logprobs: Sequence[float],
    tops: Sequence[Mapping[int, float]],
    num_top: int,
    temperature: float | None,
    *,
    as_ids: bool = False,
) -> list[dict[str, Any]]:
    """Each token with its log-probability and those of the likeliest ones, all at the temperature it was sampled at.

    Args:
        tops: at temperature 1, the sampled token among them.
        temperature: of the sampler; None, and 0: log-probabilities at temperature 1.
        as_ids: whether tokens are named by their ids.
    """

    def show(token: int, value: float) -> dict[str, Any]:
        data = list(token_bytes(tokenizer, token))
        text = f"token_id:{token}" if as_ids else token_text(tokenizer, token)
        return {"token": text, "token_id": token, "logprob": _to_finite(value), "bytes": data}

    shown = []
    for token, value, top in zip(tokens, logprobs, tops, strict=True):
        scale = 1.0 / temperature if temperature else 1.0
        own = value if temperature else top[token]
        shift = own - scale * top[token]  # the distribution at the temperature is that at 1, scaled and normalised
        others = [show(other, scale * logprob + shift) for other, logprob in top.items()][:num_top]
        shown.append({**show(token, own), "top_logprobs": others})
    return shown


def _to_finite(value: float) -> float:
    """JSON has no infinity; no probability is as small."""
    return value if math.isfinite(value) else -9999.0
