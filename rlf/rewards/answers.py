"""Gold answers, and whether a text is one of them or holds one."""

from __future__ import annotations

from typing import Any

from rlf.core.redact import fold
from rlf.rewards.normalization import Normalization, has_words, normalize


def golds(answer: Any) -> tuple[str, ...]:
    """Every right answer of a task as text: of one value itself, of a list each."""
    values = answer if isinstance(answer, list | tuple) else (answer,)
    return tuple(str(value) for value in values if value is not None)


def shown(answers: tuple[str, ...]) -> str:
    """Golds as a reason names them."""
    return " or ".join(map(repr, answers))


def same(answer: str, gold: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether both normalise to the same text.

    A gold of which a normalisation leaves nothing ("A" for Search-R1's, "?") must be met as it stands, in any case;
    Search-R1 itself takes any two such texts for equal.
    """
    if normal := normalize(gold, by):
        return normalize(answer, by) == normal
    bare = plain(gold)
    return bare != "" and plain(answer) == bare


def holds(text: str, gold: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether the words of the gold stand in the text one after the other.

    A gold of no words, or one that is an article ("A"), must be the text.
    """
    normal = normalize(gold, by)
    return f" {normal} " in f" {normalize(text, by)} " if has_words(normal) else same(text, gold, by)


def plain(text: str) -> str:
    """The text in one Unicode form and lower case, without the space around it."""
    return fold(text).strip().casefold()
