"""Results cut to head and tail, within a budget of characters and of tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from rlf.core.text import size_bytes
from rlf.tools.limits import Limits
from rlf.tools.results import cut

CountTokens = Callable[[str], int]
"""Tokens of a text for the run's model."""

MAX_KEPT_BYTES = 1_000_000
"""Largest result that is kept whole when the model is shown a part; of a larger one only the hash is."""


class Shown(NamedTuple):
    """A result within its budget."""

    text: str
    truncated: bool
    size_bytes: int
    """Of the whole result."""
    sha256: str = ""
    original: str | None = None


class Budget:
    """The limits of one tool's output, and what is struck out of it."""

    def __init__(self, limits: Limits, count_tokens: CountTokens | None, redact: Callable[[str], str] = str) -> None:
        """Takes the limits; without `count_tokens` characters alone count."""
        self._max_chars = limits.max_output_chars
        self._max_tokens = limits.max_output_tokens if count_tokens else None
        self._count = count_tokens
        self._redact = redact

    def show(self, text: str) -> Shown:
        """The text as the model reads it, without secrets, cut where it is too long."""
        if len(text) > MAX_KEPT_BYTES:  # the whole of it is kept nowhere, and to read it all would hold up the loop
            return Shown(self._cut_text(text, self._redact), True, size_bytes(text), _hash_text(text))
        text = self._redact(text)
        size = size_bytes(text)
        if len(text) <= self._max_chars and (self._max_tokens is None or size <= self._max_tokens):
            return Shown(text, False, size)  # no tokenizer has less than a byte to a token
        shown = self._cut_text(text, str)
        if shown == text:
            return Shown(text, False, size)
        return Shown(shown, True, size, _hash_text(text), text if size <= MAX_KEPT_BYTES else None)

    def _cut_text(self, text: str, redact: Callable[[str], str]) -> str:
        """Cuts to the characters, then to ever fewer until the tokens fit or the marker is left."""
        shown = cut(text, self._max_chars, redact)
        num_chars = len(shown)
        while (
            self._max_tokens is not None and num_chars and (num_tokens := self._count_tokens(shown)) > self._max_tokens
        ):
            num_chars = int(num_chars * self._max_tokens / num_tokens * 0.95)
            shown = cut(text, num_chars, redact)
        return shown

    def _count_tokens(self, text: str) -> int:
        assert self._count is not None, "a budget of tokens without a tokenizer"
        return self._count(text)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
