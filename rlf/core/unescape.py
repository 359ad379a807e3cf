"""Text without its escapes, with the place of each character: of JSON, URLs, HTML and Python, in any mixture and depth.

Two texts that say the same in different escapes are equal once they are unescaped as far as it goes.
"""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple

MAX_ESCAPED_CHARS = 100
"""Most characters that one takes, escaped several times over: `&#X0026;&#X0023;39&#X003B;` is a quote."""
_MAX_DEPTH = 8
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

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """The part of the original that a part of the text stands for; not an empty one."""
        return self.starts[start], self.ends[end - 1]


def unescape_fully(text: str) -> Unescaped:
    """The text without escapes, `+` as the space that it is in forms."""
    found = Unescaped(text, list(range(len(text))), list(range(1, len(text) + 1)))
    for _ in range(_MAX_DEPTH):
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
