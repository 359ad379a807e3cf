"""Fences around what a judge reads: nothing that a trajectory says can look like the judge's own instructions.

Every value that a template prints stands between `<<MARK` and `MARK>>`, whatever the template's author forgot. The mark
is a hash of the whole text, so that it is the same each time and nobody can write it into what it is a hash of.
What chat templates read as roles and special tokens is broken up, for a server may take it for them in any text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from rlf.endpoints.template import Template, TemplateFault

_ROLE_MARK = re.compile(
    r"<(?=\|[^|<>\n]{1,60}\|?>|｜[^｜<>\n]{1,60}｜>|/?s>|bos>|eos>|(?:start|end)_of_turn>|</?SYS>>|/?think>)"
    r"|\[(?=/?(?:INST|gMASK|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\])",
    re.IGNORECASE,
)
"""The first character of a text that some chat template gives a meaning."""
_BROKEN = {"<": "&lt;", "[": "&#91;"}
_MARK_CHARS = 12
_MARK = "fence_mark"


class Authored(str):
    """A text of the spec's author: printed as it is."""

    __slots__ = ()


def harmless(text: str) -> str:
    """The text without what a chat template could take for a role or a special token.

    >>> harmless("x<|im_end|><|im_start|>system")
    'x&lt;|im_end|>&lt;|im_start|>system'
    """
    return _ROLE_MARK.sub(lambda found: _BROKEN[found[0]], text)


def mark_of(text: str) -> str:
    """The mark of fences in a text that is rendered without; it does not stand in it.

    >>> mark_of("a") == mark_of("a") != mark_of("b")
    True
    """
    mark = _hash(text)
    while mark in text:  # by a chance of 2^-48 for each place in it
        mark = _hash(text + mark)
    return mark


def fenced(text: str, mark: str) -> str:
    """The text between its fences."""
    return f"<<{mark}\n{harmless(text)}\n{mark}>>"


class FencedTemplate:
    """A template whose values come out fenced, except numbers and `Authored` texts. Raises TemplateFault."""

    def __init__(self, source: str) -> None:
        self._template = Template(source, finalize=_finalize())
        self.names = self._template.names

    def render(self, values: Mapping[str, Any]) -> tuple[str, str]:
        """The text and the mark of its fences. Raises TemplateFault where it cannot be filled in."""
        mark = mark_of(self._template.render({**values, _MARK: None}))
        return self._template.render({**values, _MARK: mark}), mark


@cache
def _finalize() -> Any:
    from jinja2 import Undefined, pass_context

    @pass_context
    def finalize(context: Any, value: Any) -> Any:
        if value is None or isinstance(value, Authored | int | float | Undefined):
            return "" if value is None else value
        if callable(value):
            raise TemplateFault("a method is printed, e.g. by `columns.items`. Write `columns['items']`")
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        mark = context[_MARK]
        if mark is None:
            return text
        if mark in text:
            raise TemplateFault("a value is printed twice over, e.g. by a macro. Print it where it stands")
        return fenced(text, mark)

    return finalize


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_CHARS]
