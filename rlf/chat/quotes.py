"""Quotations that prose opens around a call: a code fence, a comment, a thinking tag that the spec does not name.

A call in one of these is shown, not made.
"""

from __future__ import annotations

import re

_TAGS = "thinking|thoughts?|reasoning|reflection|scratchpad|inner_monologue"
_MARK = re.compile(
    r"(?<!`)`{3,}+[^`\n]+`{3,}+|(?P<fence>(?<!`)`{3,}+|^[ \t>]*~{3,})(?P<info>[^`\n]*)$"
    rf"|(?P<open><!--|<(?:{_TAGS})>)|(?P<close>-->|</(?:{_TAGS})>)",
    re.MULTILINE | re.IGNORECASE,
)
_COMMENT = re.compile(r"[ \t]*(?://|#|>)[ \t]*")
"""A line that is a comment or a quotation, up to the call."""
_CLOSING = {"<!--": "-->"}


class Quotes:
    """The quotations that are open after the prose read so far."""

    __slots__ = ("_fence", "_is_owed", "_last_line", "_tag")

    def __init__(self) -> None:
        self._fence = ""
        """The marks that opened a code fence; empty outside one."""
        self._tag = ""
        """The opening tag of a comment or of thinking; empty outside one."""
        self._last_line = ""
        self._is_owed = False
        """Whether a failed call has opened a fence, so that the next bare mark closes it and opens none."""

    def read(self, prose: str) -> None:
        """Takes the prose that follows: each piece once, in order."""
        self._last_line = prose[prose.rfind("\n") + 1 :]
        for mark in _MARK.finditer(prose):
            if mark["fence"]:
                self._read_fence(mark["fence"].lstrip(" \t>"), mark["info"].strip())
            elif mark["open"] and not self._tag:
                self._tag = mark["open"].lower()
            elif mark["close"] and mark["close"].lower() == _CLOSING.get(self._tag, f"</{self._tag[1:]}"):
                self._tag = ""

    def read_failed(self, text: str) -> None:
        """Takes a call that could not be read: the end of a fence in it may stand after it."""
        if sum(mark["fence"] is not None for mark in _MARK.finditer(text)) % 2:
            self._is_owed = not self._is_owed

    def place(self, text: str, start: int, end: int) -> str:
        """What a call from `start` to `end` stands in, in words; empty for a call that stands free."""
        if self._fence or (text[start - 1 : start] == "`" and text[end : end + 1] == "`"):
            return "code marks"
        if self._tag:
            return "a comment" if self._tag == "<!--" else self._tag
        return "a comment or quotation" if _COMMENT.fullmatch(self._last_line) else ""

    def _read_fence(self, marks: str, info: str) -> None:
        if not self._fence:
            self._fence = "" if self._is_owed and not info else marks
            self._is_owed = self._is_owed and bool(info)
        elif marks.startswith(self._fence) and not info:
            self._fence = ""
