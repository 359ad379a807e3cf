"""Text in one form: what Unicode writes in several ways that mean the same is written in one.

NFC, full and half width, digits of any script, dashes, quotes, spaces; characters of no width are dropped. What means
something else stays: a superscript, a fraction, a sign, upper case.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_MAPPED = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe58\ufe63", "-"),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u300c\u300d\u300e\u300f", '"'),
    "\u2044": "/",
    "\u2215": "/",
    "\u3002": ".",
    "\u3001": ",",
    "\u2026": "...",
}
_SAME_CHARACTER = ("<wide>", "<narrow>", "<noBreak>")
"""Compatibility decompositions that differ in how they are set alone."""


def fold(text: str) -> str:
    """The text in one form.

    >>> fold("\\uff0d\\uff15 \\u201cA\\u200b\\u201d")
    '-5 "A"'
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", "".join(map(_fold_character, unicodedata.normalize("NFC", text))))


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    mapped = _MAPPED.get(character)
    if mapped is not None:
        return mapped
    category = unicodedata.category(character)
    if category == "Cf":
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category == "Zs":
        return " "
    tag, _, code = unicodedata.decomposition(character).partition(" ")
    if tag not in _SAME_CHARACTER:
        return character
    plain = "".join(chr(int(each, 16)) for each in code.split())
    return _MAPPED.get(plain, plain)
