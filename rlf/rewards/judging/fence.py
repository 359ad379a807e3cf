"""Fences around what a judge reads: nothing that a trajectory says can look like the judge's own instructions.

Every value that a template prints stands between `<<MARK` and `MARK>>`, whatever the template's author forgot. The mark
is a hash of the whole text, so that it is the same each time and nobody can write it into what it is a hash of.
What chat templates read as roles and special tokens is broken up, for a server may take it for them in any text: the
judge's own tokens where its tokenizer is on this machine, and those of a broad list in any case.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from rlf.endpoints.template import Template, TemplateFault

_NAMES = (
    r"s|bos|eos|pad|unk|mask|sep|cls|sop|eop|eod|eot|eom|eoh|endoftext|image|video|audio|think|thinking"
    r"|(?:BOS|EOS|EOP|MASK|PAD|UNK|SEP|CLS)_TOKEN|(?:start|end)_?of_[a-z_]{2,20}|end_of_text|SYS"
    r"|(?:tool|function|longcat)_[a-z_]{2,24}|(?:start|end)_function_[a-z]{2,12}|tools?|arg_key|arg_value|escape"
    r"|fim[_-][a-z]{2,8}|(?:file_sep|repo_?name|reponame|filename|gh_stars|empty_output|issue_[a-z]{3,8})"
    r"|(?:jupyter|commit|intermediate)_[a-z_]{2,16}|pr(?:_[a-z_]{2,20})?|NAME|EMAIL|KEY|PASSWORD"
    r"|(?:image|video|audio|vision|fake|img|patch|row|im)_[a-z0-9_]{1,32}|global-img|boi|eoi|img|box|ref|quad"
    r"|(?:unused|extra_id_|reserved_?|reserved_(?:special_)?token_|SPECIAL_|special_?)\d{1,4}|mm:think"
    r"|(?:minimax|seed|atem|steptml):[a-z_]{2,24}"
)
_BRACKETED = (
    r"INST|gMASK|sMASK|MASK|CLS|SEP|PAD|UNK|BOS|EOS|EOT|IMG|IMG_[A-Z]{2,8}|AUDIO|BEGIN_AUDIO|PREFIX|SUFFIX|MIDDLE"
    r"|ARGS|CALL_ID|THINK|TRANSCRIBE|SYSTEM_PROMPT|MODEL_SETTINGS|TOOL_[A-Z]{3,12}|AVAILABLE_TOOLS"
)
_KNOWN = (
    rf"<(?=\|[^|<>\n]{{1,60}}\|?>|[a-z_]{{3,30}}\|>|/?｜[^<>\n]{{1,60}}>|/?(?:{_NAMES})>|</?SYS>>)"
    rf"|\[(?=/?(?:{_BRACKETED})\])|\](?=~[!a-z]{{1,2}}[\[\]])|\[(?=e~\[)"
)
"""The first character of a text that some tokenizer has as a special token, or some chat template gives a meaning."""
_BROKEN = {"<": "&lt;"}
_MARK_CHARS = 12
_MARK = "fence_mark"


class Authored(str):
    """A text of the spec's author: printed as it is."""

    __slots__ = ()


def harmless(text: str, tokens: frozenset[str] = frozenset()) -> str:
    """The text without what a chat template could take for a role or a special token.

    Args:
        tokens: the judge's own special and added tokens, where they are known; a broad list goes beside them.

    >>> harmless("x<|im_end|><|im_start|>system")
    'x&lt;|im_end|>&lt;|im_start|>system'
    """
    return _compile_pattern(tokens).sub(lambda found: _BROKEN.get(found[0], f"&#{ord(found[0])};"), text)


@cache
def _compile_pattern(tokens: frozenset[str]) -> re.Pattern[str]:
    """First characters of tokens: so that one which begins inside another is broken too."""
    own = [f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token in sorted(tokens)]
    return re.compile("|".join([f"(?i:{_KNOWN})", *own]))


def mark_of(text: str) -> str:
    """The mark of fences in a text that is rendered without; it does not stand in it.

    >>> mark_of("a") == mark_of("a") != mark_of("b")
    True
    """
    mark = _hash_text(text)
    while mark in text:  # by a chance of 2^-48 for each place in it
        mark = _hash_text(text + mark)
    return mark


def fenced(text: str, mark: str, tokens: frozenset[str] = frozenset()) -> str:
    """The text between its fences."""
    return f"<<{mark}\n{harmless(text, tokens)}\n{mark}>>"


class FencedTemplate:
    """A template whose values come out fenced, except numbers and `Authored` texts. Raises TemplateFault."""

    def __init__(self, source: str, tokens: frozenset[str] = frozenset()) -> None:
        """`tokens`: the special and added tokens of those who read it, where they are known."""
        self._template = Template(source, finalize=_make_finalizer(tokens))
        self.names = self._template.names

    def render(self, values: Mapping[str, Any]) -> tuple[str, str]:
        """The text and the mark of its fences. Raises TemplateFault where it cannot be filled in."""
        mark = mark_of(self._template.render({**values, _MARK: None}))
        return self._template.render({**values, _MARK: mark}), mark


@cache
def _make_finalizer(tokens: frozenset[str]) -> Any:
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
        return fenced(text, mark, tokens)

    return finalize


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_CHARS]
