"""The forms that texts are compared in: which differences between an answer and a gold do not count.

`text` keeps what carries meaning: signs, points in numbers, operators, units, identifiers. `squad` is the function of
SQuAD and Search-R1, which deletes all ASCII punctuation, so that -5 is 5 and 3.0 is 30.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Any

from rlf.core.redact import fold


class Normalization(StrEnum):
    """Which differences do not count when an answer is compared with a gold."""

    TEXT = "text"
    """Case, spacing, how Unicode writes a character, a leading article, and the punctuation around words. Signs,
    points, digits and operators count: -5, .5, 3.0, 1/2, 10:30 and C++ are what they are."""
    SQUAD = "squad"
    """Case, spacing, every article and all ASCII punctuation, as SQuAD and Search-R1 compare: -5 is 5, 3.0 is 30."""


# As in SQuAD's evaluation script: articles anywhere, not only in front.
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_EMPHASIS = re.compile(r"(?<![\w)*])(\*{1,3}|`{1,3})(?=[^\s*`])([^*`]{1,200})(?<=\S)\1(?![\w(*])")
"""Markdown around words: *x*, **x**, `x`."""
# 1,000,000 is a number; in 1,2 and in 1,2,345 the commas separate.
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,])")
# Between digits it is a range: 3—5.
_LONG_DASH = re.compile("(?<=\\d)[\u2014\u2015](?=\\d)")
_HYPHEN = re.compile(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})")
"""Between words; at a digit or a single letter it may be a sign."""
# Marks that separate words even without a space.
_BETWEEN = re.compile("([,;\u2014\u2015])")
# A bullet needs a letter behind it: `- 5` is minus five.
_BULLET = re.compile("\\s*[-*\u2022]\\s+(?=[^\\W\\d_])")
# U.S. and p.m.: two or more single letters with points, which are read without them.
_ABBREVIATION = re.compile(r"(?:[^\W\d_]\.){2,}")
_AROUND = "\"'?!:,;\u2014\u2015"
_AT_START, _AT_END = f"{_AROUND}\u00a1\u00bf".replace("!", ""), f"{_AROUND}."
"""A mark of exclamation before a word is an operator: !x, !=."""
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_LEADING = frozenset({"a", "an", "the"})
"""Where nothing but space follows: in "A, B" the first is a letter."""
_OPENING = f"{_AT_START}([{{"
_MAX_LAYERS = 8
"""Of brackets and quotes in one another that are taken off a word: the time stays linear in the text."""

_LOST_BY_SQUAD = re.compile(
    r"[+#*/=<>^%$\\|~@&_]"  # operators, units, identifiers
    r"|(?<![\w.])[-.:](?=\w)|(?<=\d)[-.:'](?=\w)|(?<=\w)-(?!\w)|(?<=\d)!"  # signs, and points of numbers
    r"|(?<=\w)[(\[](?=\w)"  # calls
    r"|(?<=\w )a$",  # a name that an article ends: vitamin A
    re.IGNORECASE,
)
_LOST_BY_TEXT = re.compile(
    r"(?:\d|\)|\b[^\W\d_])!+$"  # factorials
    r"|^(?:\[[^\])]*\)|\([^\])]*\])$"  # intervals that are open on one side
    r"|^[^'\"]*\d['\"]+$"  # feet, inches, minutes
    r"|\n[ \t]+\S"  # indented code
)


@lru_cache(maxsize=512)
def normalize(text: str, by: Normalization = Normalization.TEXT) -> str:
    """The form that texts are compared in, words with single spaces between.

    >>> normalize("The Eiffel Tower (-5.0 m), Paris!")
    'eiffel tower -5.0 m paris'
    >>> normalize("The  Eiffel-Tower, Paris!", Normalization.SQUAD)
    'eiffeltower paris'
    """
    if by is Normalization.SQUAD:  # Search-R1's `normalize_answer` (`qa_em.py`)
        return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
    return _normalize_text(text)


def has_words(normal: str) -> bool:
    """Whether a normalised gold can be looked for in a text: not where it is nothing, or an article."""
    return normal != "" and normal not in _LEADING


def destroyed(gold: str, by: Normalization) -> str | None:
    """The rest of a gold that loses meaning by a normalisation.

    None where it loses none, and where nothing is left, since such a gold must be met as it stands.
    """
    loses = (_LOST_BY_SQUAD if by is Normalization.SQUAD else _LOST_BY_TEXT).search(fold(gold).strip())
    return (normalize(gold, by) or None) if loses else None


def _normalize_text(text: str) -> str:
    text = fold(text)
    bullet = _BULLET.match(text)
    text = _EMPHASIS.sub(r"\2", text if bullet is None else text[bullet.end() :])
    text = _THOUSANDS.sub(lambda number: number[1].replace(",", ""), text)
    text = _BETWEEN.sub(r"\1 ", _HYPHEN.sub(" ", _LONG_DASH.sub("-", text)))
    words = [(chunk, word) for chunk in text.casefold().split() if (word := _strip_punctuation(chunk))]
    start = next((at for at, (chunk, _) in enumerate(words[:-1]) if chunk.lstrip(_OPENING) not in _LEADING), -1)
    return " ".join(word for _, word in words[start:])


def _strip_punctuation(chunk: str) -> str:
    """A word without the punctuation around it; brackets that belong to the word stay: f(x)."""
    if chunk.isalnum():
        return chunk
    if _ABBREVIATION.fullmatch(chunk):
        return chunk.replace(".", "")
    for _ in range(_MAX_LAYERS):
        before = chunk
        chunk = _without_brackets(_without_points(chunk.lstrip(_AT_START)).rstrip(_AT_END))
        if chunk == before:
            break
    return chunk


def _without_points(chunk: str) -> str:
    """Leading points go, but for one that a word or number begins with: .5, .NET."""
    bare = chunk.lstrip(".")
    return chunk if len(chunk) - len(bare) == 1 and bare[:1].isalnum() else bare


def _without_brackets(chunk: str) -> str:
    """Brackets at the ends go where they enclose the whole word or have no partner in it."""
    partners = dict(_pair_brackets(chunk))
    first, last = chunk[:1] in _PAIRS, chunk[-1:] in _PAIRS.values()
    if first and partners.get(0) == len(chunk) - 1:
        return chunk[1:-1]
    if first and 0 not in partners:
        return chunk.lstrip("".join(_PAIRS)) if not partners else chunk[1:]
    if last and len(chunk) - 1 not in partners.values():
        return chunk.rstrip("".join(_PAIRS.values())) if not partners else chunk[:-1]
    return chunk


def _pair_brackets(chunk: str) -> Iterator[tuple[int, int]]:
    """Places of brackets that open and close one another."""
    opened: list[int] = []
    for at, character in enumerate(chunk):
        if character in _PAIRS:
            opened.append(at)
        elif character in _PAIRS.values() and opened and _PAIRS[chunk[opened[-1]]] == character:
            yield opened.pop(), at


# Gold answers, and whether a text is one of them or holds one.


def golds(answer: Any) -> tuple[str, ...]:
    """Every right answer of a task as text: of one value itself, of a list each."""
    values = answer if isinstance(answer, list | tuple) else (answer,)
    return tuple([str(value) for value in values if value is not None])


def shown(answers: tuple[str, ...]) -> str:
    """Golds as a reason names them."""
    return " or ".join(map(repr, answers))


def same_text(answer: str, gold: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether both normalise to the same text.

    A gold of which a normalisation leaves nothing ("A" for Search-R1's, "?") must be met as it stands, in any case;
    Search-R1 itself takes any two such texts for equal.
    """
    if normal := normalize(gold, by):
        return normalize(answer, by) == normal
    bare = plain_text(gold)
    return bare != "" and plain_text(answer) == bare


def holds(text: str, gold: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether the words of the gold stand in the text one after the other.

    A gold of no words, or one that is an article ("A"), must be the text.
    """
    normal = normalize(gold, by)
    return f" {normal} " in f" {normalize(text, by)} " if has_words(normal) else same_text(text, gold, by)


def plain_text(text: str) -> str:
    """The text in one Unicode form and lower case, without the space around it."""
    return fold(text).strip().casefold()


# A sampled turn keeps its stop token, which could end a message in the judge's own template too.
_TURN_END = re.compile(r"(?:<\|[\w-]+\|>|</s>|<eos>|<end_of_turn>)\s*$")


def plain_turn(text: str) -> str:
    """A turn's text without the special tokens that end it."""
    while (ended := _TURN_END.sub("", text)) != text:
        text = ended
    return text
