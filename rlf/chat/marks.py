"""Signs that a text holds a call of some syntax, and the prefilter that makes looking for all of them cheap.

A syntax brings its own expression and the signs of it: texts one of which every match holds. An expression runs only
over a text with one of its signs, so that ordinary prose costs a few substring tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from rlf.types import ToolDescription


@dataclass(frozen=True, slots=True)
class Marks:
    """Signs of a call."""

    pattern: re.Pattern[str]
    signs: tuple[str, ...]
    """In lower case; every match holds one of them, in whatever case."""

    @classmethod
    def of(cls, expression: str, *signs: str) -> Self:
        """The marks of an expression, whose case is ignored and whose `^` is the beginning of a line.

        Without signs it runs over every text.
        """
        return cls(re.compile(expression, re.IGNORECASE | re.MULTILINE), signs or ("",))


BARE_OBJECT = Marks.of(
    r"""\{\s*["'](?:name|function|tool)["']\s*:\s*["'][^"'\n]*["']\s*,\s*["'](?:arguments|parameters|args)["']\s*:"""
    r"""|["'](?:arguments|parameters)["']\s*:\s*\{[^{}]*\}\s*,\s*["']name["']\s*:""",
    "{",
)
"""A call as a bare JSON object, of whatever family: what no answer holds."""
MENTION = re.compile(r"`(?:</?[^<>`\n]{1,40}>|\[/?[A-Z_]{2,20}\])`")
"""A mark alone between backticks: words about a mark, no call."""


def bare_calls(tools: Sequence[ToolDescription]) -> tuple[Marks, ...]:
    """Calls of declared tools without any mark: `f(x=1)` on a line, `f {"x": 1}`, `"tool": "f"`, `<f>{...}`."""
    if not tools:
        return ()
    names = "|".join(sorted((re.escape(tool.name) for tool in tools), key=len, reverse=True))
    expression = (
        rf"""^[ \t>*\-`\["'(]*(?:(?:print|call|await|return)[ (]+)?(?:[a-z_]+\.)?(?:{names})"""
        rf"""(?:\(\s*(?:\)|\w+\s*=(?!=)|["'{{\[]|[^()\n]*\)[`\]\s]*$)|[ \t]*:?\s*\{{)"""
        rf"""|[{{"'“”]\s*(?i:name|function|tool|tool_name|action)\W{{1,6}}(?:{names})\b(?!\s*\w)"""
        rf"""|\b(?:{names})\W{{1,6}}(?i:arguments|parameters|args)\W{{1,6}}[{{\["'“”]"""
        rf"""|<(?:{names})>\s*[<{{]"""
    )
    return (Marks(re.compile(expression, re.MULTILINE), tuple(_fold_case(tool.name) for tool in tools)),)


class Lookalikes:
    """Marks of many syntaxes at once: what looks like a call of any of them."""

    __slots__ = ("_by_sign",)

    def __init__(self, every: Iterable[Marks]) -> None:
        self._by_sign: dict[str, list[re.Pattern[str]]] = {}
        for each in dict.fromkeys(every):
            for sign in each.signs:
                self._by_sign.setdefault(sign, []).append(each.pattern)

    def first(self, text: str, start: int = 0) -> int | None:
        """Where a text first looks like a call, from `start` on; a mark that is only mentioned does not."""
        folded = _fold_case(text[start:])
        likely = [pattern for sign, found in self._by_sign.items() if sign in folded for pattern in found]
        places = [place for pattern in likely if (place := _first_place(pattern, text, start)) is not None]
        return min(places, default=None)


def _first_place(pattern: re.Pattern[str], text: str, start: int) -> int | None:
    for found in pattern.finditer(text, start):
        if not found.start() or MENTION.match(text, found.start() - 1) is None:
            return found.start()
    return None


def _fold_case(text: str) -> str:
    """The text in lower case, as expressions that ignore case see it."""
    return text.lower() if text.isascii() else text.casefold().replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")


NOTHING = Lookalikes(())
"""No syntax: nothing looks like a call."""
