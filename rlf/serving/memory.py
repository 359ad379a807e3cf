"""What the server remembers of conversations, as much as fits; the oldest is forgotten first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sampled:
    """A conversation up to the end of a turn that was sampled, by the words of that conversation."""

    tokens: tuple[int, ...]
    """Prompt and turn."""
    text: str
    """The turn, as it is parsed."""
    observed: tuple[str | None, ...]
    """What the next prompt answers: None for a call, whose result a client brings; for a failure beside calls the words
    that correct it, as in training."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation that a client continues by the id of its last answer."""

    messages: tuple[Mapping[str, Any], ...]
    """In the words of chat completions, up to that answer; without the system's."""
    settings: Mapping[str, Any]
    """Keys of the first request that hold for the requests after it."""


class Memory(Generic[T]):
    """The latest values by key, as many as fit."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()

    def put(self, key: str, value: T, size: int) -> None:
        """Remembers a value, and forgets the oldest where there is no room."""
        digest = _hash_key(key)
        self._forget(digest)
        self._values[digest] = value, size
        self._size += size
        while self._size > self._max_size:
            self._forget(next(iter(self._values)))

    def get(self, key: str) -> T | None:
        """A value; None where it was never put here, or is forgotten."""
        return self._values.get(_hash_key(key), (None, 0))[0]

    def _forget(self, digest: bytes) -> None:
        self._size -= self._values.pop(digest, (None, 0))[1]


def _hash_key(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
