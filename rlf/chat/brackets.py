"""Where a call that cannot be read ends, judged by its brackets and quotes, so that no tag in its strings ends it."""

from __future__ import annotations

import re


def bracket_pattern(marks: str) -> re.Pattern[str]:
    """Brackets, whole strings and the marks of a format; a mark between strings breaks the balance.

    Strings are atomic, so that scanning stays linear; a quote that never closes is the last alternative.
    """
    return re.compile(rf""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|{marks}|[{{}}\[\]"']""", re.DOTALL)


def balanced_end(text: str, start: int, brackets: re.Pattern[str], closing: re.Pattern[str]) -> int | None:
    """Where brackets opened at `start` close with `closing` next, reading quotes of both kinds; or None."""
    depth = 0
    for match in brackets.finditer(text, start):
        token = match.group()
        if token in ("{", "["):
            depth += 1
        elif token in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return match.end() if depth == 0 and closing.match(text, match.end()) else None
        elif len(token) == 1 or token[0] == "<":
            return None
    return None
