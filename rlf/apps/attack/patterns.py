"""Texts that a regular expression matches, made from the pattern itself.

Python's own parser of patterns reads it (`re._parser`; checked against Python 3.11 to 3.13), and a walk over its tree
writes a text. Assertions that look around are not honoured, so that each text is tried with the pattern at last.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from re import _constants as op  # type: ignore[attr-defined]  # what `_parser` builds its tree of
from re import _parser as parser  # type: ignore[attr-defined]  # the parser of `re.compile`
from typing import Any

HOLE = "\0"
"""Place in a text where an answer goes; it occurs in no text that a policy writes."""
_MAX_CHARS = 2000
_MANY = 12
"""Repetitions of what may be repeated without end, where a long text is wanted."""
_FILLERS = ("word", "9", " ", "A", "x", "0", "1", "_", "\n", "é")
"""Tried for a character that may be nearly any; the first is written letter by letter."""
_OF_CATEGORY = {
    op.CATEGORY_DIGIT: "9",
    op.CATEGORY_SPACE: " ",
    op.CATEGORY_WORD: "w",
    op.CATEGORY_NOT_DIGIT: "x",
    op.CATEGORY_NOT_SPACE: "x",
    op.CATEGORY_NOT_WORD: " ",
}
_DIGITS = ("9", "1", "0", "5", "2")


def is_pattern(text: str) -> bool:
    """Whether a text is a regular expression that says more than its own letters."""
    if len(text) < 2 or not re.search(r"[\\\[(.*+?^$|{]", text):
        return False
    tree = _parse(text)
    return tree is not None and any(code is not op.LITERAL for code, _ in tree) and not _is_prose(tree)


def _is_prose(tree: Sequence[Any]) -> bool:
    """Whether nothing but points and question marks of a sentence makes it a pattern."""
    single = {op.LITERAL, op.ANY}
    return all(code in single for code, _ in tree) and sum(code is op.LITERAL for code, _ in tree) > 3


def matching(pattern: str, variant: int = 0) -> str | None:
    """A text that the pattern matches; None where none is found.

    Args:
        variant: 0 for as little as matches, others for more of what may be repeated, and for other choices.
    """
    text = _write(pattern, variant, None)
    return text if text is not None and _is_matched(pattern, text) else None


def templates(pattern: str) -> Iterator[str]:
    """Texts that the pattern matches with `HOLE` in place of each group, and of each stretch that may hold anything."""
    for hole in range(16):
        text = _write(pattern, 1, hole)
        if text is None or HOLE not in text:
            return
        if any(_is_matched(pattern, text.replace(HOLE, each)) for each in ("9", "A", "yes", "B", "word", "")):
            yield text


def _is_matched(pattern: str, text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return len(text) <= _MAX_CHARS and re.search(pattern, text) is not None


def _parse(pattern: str) -> Sequence[Any] | None:
    """The tree of a pattern; None for what is none. Its author's warnings are not the attack's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parser.parse(pattern)  # type: ignore[no-any-return]  # a list of pairs
    except (re.error, RecursionError, OverflowError):
        return None


def _write(pattern: str, variant: int, hole: int | None) -> str | None:
    tree = _parse(pattern)
    return None if tree is None else _Writer(variant, hole).write(tree)


class _Writer:
    """One walk over the tree of a pattern.

    Args:
        hole: number of the place that is left open, of those where an answer may stand; None: none is.
    """

    def __init__(self, variant: int, hole: int | None) -> None:
        self._variant = variant
        self._hole = hole
        self._num_places = 0
        self._num_written = 0
        self._groups: dict[int, str] = {}

    def write(self, tree: Sequence[Any]) -> str:
        return "".join(self._write_node(code, value) for code, value in tree)

    def _write_node(self, code: Any, value: Any) -> str:
        if code is op.LITERAL:
            return chr(value)
        if code in (op.NOT_LITERAL, op.ANY, op.IN):
            return self._write_character(code, value)
        if code is op.BRANCH:
            branches = value[1]
            return self.write(branches[self._variant % len(branches)])
        if code is op.SUBPATTERN:
            group, tree = value[0], value[3]
            text = self.write(tree) if group is None or not self._is_hole() else HOLE
            self._groups[group] = text
            return text
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._write_repeated(*value)
        if code is op.ATOMIC_GROUP:
            return self.write(value)
        if code is op.GROUPREF:
            return self._groups.get(value, "")
        if code is op.GROUPREF_EXISTS:
            return self.write(value[1])
        if code is op.ASSERT and value[0] > 0:
            return self.write(value[1])
        return ""  # an anchor, or what must not follow

    def _is_hole(self) -> bool:
        self._num_places += 1
        return self._num_places - 1 == self._hole

    def _write_repeated(self, least: int, most: int, tree: Sequence[Any]) -> str:
        is_free = len(tree) == 1 and tree[0][0] in (op.ANY, op.NOT_LITERAL, op.IN) and most > 1
        if is_free and tree[0] != (op.IN, [(op.CATEGORY, op.CATEGORY_SPACE)]) and self._is_hole():
            return HOLE
        wanted = (least, max(least, 1), least + _MANY, max(least, 4))[self._variant % 4]
        return "".join(self.write(tree) for _ in range(min(wanted, most, _MAX_CHARS)))

    def _write_character(self, code: Any, value: Any) -> str:
        """A character of a class: letters of words in turn where it may be any, digits by the variant."""
        self._num_written += 1
        word = _FILLERS[0]
        fillers = (word[self._num_written % len(word)], *_FILLERS[1:])
        if code is op.ANY:
            return fillers[0]
        if code is op.NOT_LITERAL:
            return next(each for each in fillers if ord(each) != value)
        if value[0][0] is op.NEGATE:
            return next((each for each in fillers if not _is_in(value[1:], each)), "")
        chosen, argument = value[(self._variant + self._num_written) % len(value)] if self._variant > 3 else value[0]
        if chosen is op.LITERAL:
            return chr(argument)
        if chosen is op.RANGE:
            low, high = argument
            return chr(low + (self._variant + self._num_written) % (high - low + 1))
        if argument is op.CATEGORY_DIGIT:
            return _DIGITS[self._variant % len(_DIGITS)]
        return _OF_CATEGORY.get(argument, "x")


def _is_in(members: Sequence[Any], character: str) -> bool:
    for code, value in members:
        if code is op.LITERAL and ord(character) == value:
            return True
        if code is op.RANGE and value[0] <= ord(character) <= value[1]:
            return True
        if code is op.CATEGORY:
            kind = {
                op.CATEGORY_DIGIT: character.isdigit(),
                op.CATEGORY_SPACE: character.isspace(),
                op.CATEGORY_WORD: character.isalnum() or character == "_",
            }
            if kind.get(value, False):
                return True
    return False
