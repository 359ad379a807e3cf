"""The turns that were sampled here, by the conversation that they end."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

_MAX_TOKENS = 4_000_000
"""Of all conversations that are remembered."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A conversation up to the end of a turn that was sampled."""

    tokens: tuple[int, ...]
    """Prompt and turn."""
    text: str
    """The turn, as it is parsed."""
    observed: tuple[str | None, ...]
    """What the next prompt answers: None for a call, whose result a client brings; for a failure beside calls the words
    that correct it, as in training."""


class Memory:
    """The latest conversations, as many as fit."""

    def __init__(self, max_tokens: int = _MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._sampled: OrderedDict[bytes, Sampled] = OrderedDict()

    def put(self, key: str, sampled: Sampled) -> None:
        """Remembers a conversation, and forgets the oldest where there is no room."""
        digest = _hash_key(key)
        self._forget_history(digest)
        self._sampled[digest] = sampled
        self._num_tokens += len(sampled.tokens)
        while self._num_tokens > self._max_tokens:
            self._forget_history(next(iter(self._sampled)))

    def get(self, key: str) -> Sampled | None:
        """A conversation; None where it was not sampled here, or is forgotten."""
        return self._sampled.get(_hash_key(key))

    def _forget_history(self, digest: bytes) -> None:
        old = self._sampled.pop(digest, None)
        self._num_tokens -= len(old.tokens) if old is not None else 0


def _hash_key(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
