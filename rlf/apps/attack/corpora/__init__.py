"""Texts that rewards are fooled by, whatever is asked: one file each, and those that installed packages add.

A package adds its own by an entry point of the group `rlf.apps.attack.corpora` that names a class derived from Corpus.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rlf.core.registry import Registry


class Corpus(ABC):
    """Texts of one origin."""

    @abstractmethod
    def texts(self) -> Sequence[str]:
        """Answers that know nothing of the question, the shortest of a sort first."""


CORPORA: Registry[Corpus] = Registry(
    "corpus",
    "rlf.apps.attack.corpora",
    Corpus,  # type: ignore[type-abstract]  # compared with, never instantiated
)


def all_texts() -> list[str]:
    """The texts of every corpus, each once."""
    texts = (text for name in CORPORA.names() for text in CORPORA.get(name)().texts())
    return list(dict.fromkeys(texts))
