"""Search over the encyclopedia: BM25, the two best passages, and two broken twins for control runs.

The index over the shipped corpus is built when it is first needed and kept. A query costs a few additions over the
postings of its own words.
"""

from __future__ import annotations

import json
import random
import re
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache, wraps
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:  # a check imports this function and calls it not
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "NOTHING_FOUND",
    "CorpusRow",
    "SearchIndex",
    "load_corpus",
    "load_index",
    "search",
    "search_disabled",
    "search_shuffled",
]

T = TypeVar("T")

NOTHING_FOUND = "No passage found."
_TOP_K = 2
_SHUFFLE_SEED = 3
_K1 = 1.2
_B = 0.25
"""Low: among passages of one sentence, length says little about what they hold."""
_WORD = re.compile(r"[a-z0-9]+")
_MAX_QUERY_WORDS = 64


class CorpusRow(NamedTuple):
    """One row of the corpus."""

    text: str
    relation: str
    value: str


class SearchIndex:
    """BM25 over short passages (Robertson and Zaragoza 2009, equation 3.15), with each term's weights precomputed.

    weight(t, d) = idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / mean |d|)),
    idf(t) = ln(1 + (N - n_t + 0.5) / (n_t + 0.5)).
    """

    def __init__(self, texts: list[str]) -> None:
        self._num_texts = len(texts)
        counts = [Counter(_words(text)) for text in texts]
        lengths = [sum(count.values()) for count in counts]
        mean_length = sum(lengths) / max(len(lengths), 1)
        postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for position, count in enumerate(counts):
            for word, frequency in count.items():
                postings[word].append((position, frequency))
        norms = [_K1 * (1 - _B + _B * length / mean_length) for length in lengths]
        self._weights_by_word = {word: self._weights(rows, norms) for word, rows in postings.items()}

    def _weights(
        self, rows: list[tuple[int, int]], norms: list[float]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        import numpy as np

        idf = np.log(1 + (self._num_texts - len(rows) + 0.5) / (len(rows) + 0.5))
        positions = np.array([position for position, _ in rows], dtype=np.intp)
        weights = np.array([idf * tf * (_K1 + 1) / (tf + norms[position]) for position, tf in rows])
        return positions, weights

    def top(self, query: str, k: int = _TOP_K) -> list[int]:
        """The positions of the `k` best texts with a word in common, best first.

        Ties go to the first text from a place that the query decides, so that no text is everybody's neighbour.
        """
        import numpy as np

        scores = np.zeros(self._num_texts)
        for word in set(_words(query)[:_MAX_QUERY_WORDS]):
            if word in self._weights_by_word:
                positions, weights = self._weights_by_word[word]
                scores[positions] += weights
        start = zlib.crc32(query.encode("utf-8", "replace")) % max(self._num_texts, 1)
        scores = np.concatenate([scores[start:], scores[:start]])
        best: list[int] = []
        for _ in range(min(k, self._num_texts)):
            place = int(scores.argmax())
            if scores[place] <= 0.0:
                break
            best.append((place + start) % self._num_texts)
            scores[place] = 0.0
        return best


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _built_once(build: Callable[[], T]) -> Callable[[], T]:
    """`cache`, of which calls on several threads at once build one value and not one each."""
    lock, built = threading.Lock(), cache(build)

    @wraps(build)
    def get() -> T:
        with lock:
            return built()

    return get


@_built_once
def load_corpus() -> tuple[CorpusRow, ...]:
    """Every passage of the shipped encyclopedia, in file order."""
    text = files("rlf.builtin.encyclopedia").joinpath("data/corpus.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return tuple(CorpusRow(row["text"], row["relation"], row["value"]) for row in rows)


@_built_once
def load_index() -> SearchIndex:
    """The index over every passage."""
    return SearchIndex([passage.text for passage in load_corpus()])


@_built_once
def _shuffled_texts() -> tuple[str, ...]:
    """Every passage with its value replaced by another one of the same relation, by a fixed derangement."""
    positions_by_relation: defaultdict[str, list[int]] = defaultdict(list)
    corpus = load_corpus()
    for position, passage in enumerate(corpus):
        positions_by_relation[passage.relation].append(position)
    texts = [passage.text for passage in corpus]
    for relation, positions in sorted(positions_by_relation.items()):
        values = _derange([corpus[position].value for position in positions], f"{_SHUFFLE_SEED}:{relation}")
        for position, value in zip(positions, values, strict=True):
            texts[position] = corpus[position].text.replace(corpus[position].value, value)
    return tuple(texts)


def _derange(values: list[str], seed: str) -> list[str]:
    """`values` permuted so that no place keeps its value; no value may fill half of the places or more.

    Sorted order puts equal values side by side; a turn by half the length then moves each past its own run.
    """
    order = list(range(len(values)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda place: values[place])
    half = len(values) // 2
    deranged = list(values)
    for rank, place in enumerate(order):
        deranged[place] = values[order[(rank + half) % len(order)]]
    return deranged


def search(query: str) -> str:
    """Find passages of the encyclopedia: at most two, best first, one a line."""
    corpus = load_corpus()
    return "\n".join(corpus[position].text for position in load_index().top(query)) or NOTHING_FOUND


def search_disabled(query: str) -> str:
    """Find nothing, whatever `query` asks: the control in which the tool is off."""
    return NOTHING_FOUND


def search_shuffled(query: str) -> str:
    """Find the same passages as `search`, each with another entity's value: the control in which the tool lies."""
    texts = _shuffled_texts()
    return "\n".join(texts[position] for position in load_index().top(query)) or NOTHING_FOUND
