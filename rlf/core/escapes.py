"""What texts say beneath characters and escapes that mean the same."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from html import unescape
from typing import NamedTuple

# Text in one form: what Unicode writes in several ways that mean the same is written in one.
#
# NFC, full and half width, digits of any script, dashes, quotes, spaces; characters of no width are dropped. What means
# something else stays: a superscript, a fraction, a sign, upper case.

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
_UNSEEN = (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0, *range(0xFE00, 0xFE10))
_UNSEEN_CHARACTERS = frozenset(map(chr, (*_UNSEEN, *range(0xE0100, 0xE01F0))))  # that Unicode ignores beside Cf


def fold_characters(text: str) -> str:
    """The text in one form. `rlf.core.redact` asks for it where a text has more than ASCII."""
    return unicodedata.normalize("NFC", "".join(map(_fold_character, unicodedata.normalize("NFC", text))))


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    mapped = _MAPPED.get(character)
    if mapped is not None:
        return mapped
    category = unicodedata.category(character)
    if category == "Cf" or character in _UNSEEN_CHARACTERS:
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


# Text without its escapes, with the place of each character: of JSON, URLs, HTML and Python, in any mixture and depth.
#
# Two texts that say the same in different escapes are equal once they are unescaped as far as it goes.

_MAX_UNESCAPE_DEPTH = 8
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "b": "\b", "v": "\v", "a": "\a", "0": "\0"}


# Runs, since several of them may make one character. A backslash before other letters is no escape.
_ESCAPE = re.compile(
    r"(?P<percent>(?:%[0-9A-Fa-f]{2})+)"
    r"|(?P<entity>&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][0-9A-Za-z]{1,31});)"
    r"|(?P<unit>(?:\\u[0-9A-Fa-f]{4})+)"
    r"|(?P<wide>\\U[0-9A-Fa-f]{8})"
    r"|(?P<byte>(?:\\x[0-9A-Fa-f]{2})+)"
    r"|\\(?P<short>[nrtfbva0])"
    r"|\\(?P<plain>[^0-9A-Za-z])"
    r"|(?P<plus>\+)"
)


class Unescaped(NamedTuple):
    """A text, and for each of its characters the place in the original."""

    text: str
    starts: list[int]
    ends: list[int]


def unescape_fully(text: str) -> Unescaped:
    """The text without escapes, `+` as the space that it is in forms."""
    found = Unescaped(text, list(range(len(text))), list(range(1, len(text) + 1)))
    for _ in range(_MAX_UNESCAPE_DEPTH):
        once = _unescape_once(found)
        if once.text == found.text:
            break
        found = once
    return found


def _unescape_once(before: Unescaped) -> Unescaped:
    parts, starts, ends, place = list[str](), list[int](), list[int](), 0
    for match in _ESCAPE.finditer(before.text):
        said = _decode(match)
        parts += (before.text[place : match.start()], said)
        first, last = before.starts[match.start()], before.ends[match.end() - 1]
        starts += [*before.starts[place : match.start()], *[first] * len(said)]
        ends += [*before.ends[place : match.start()], *[last] * len(said)]
        place = match.end()
    parts.append(before.text[place:])
    return Unescaped("".join(parts), starts + before.starts[place:], ends + before.ends[place:])


def _decode(match: re.Match[str]) -> str:
    kind, text = match.lastgroup, match[0]
    if kind == "percent":
        return bytes.fromhex(text.replace("%", "")).decode(errors="replace")
    if kind == "byte":  # of bytes in UTF-8, or of characters below U+0100
        said = bytes.fromhex(text.replace("\\x", ""))
        try:
            return said.decode()
        except UnicodeDecodeError:
            return said.decode("latin-1")
    if kind == "unit":
        return bytes.fromhex(text.replace("\\u", "")).decode("utf-16-be", "replace")
    if kind == "wide":
        code = int(text[2:], 16)
        return chr(code) if code < 0x110000 else text
    if kind == "entity":
        return unescape(text)
    if kind == "plus":
        return " "
    return _SHORT[match["short"]] if kind == "short" else match["plain"]
