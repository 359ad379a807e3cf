"""Docstrings: a function's summary, and the words on each parameter; by Google, NumPy, Sphinx and Epytext."""

from __future__ import annotations

import re
from textwrap import dedent, indent

from docstring_parser import DocstringStyle, ParseError, parse
from docstring_parser.common import Docstring

_SECTION = re.compile(
    r"^[\s*_#]*(Args|Arguments|Parameters|Params|Keyword Arg(?:ument)?s|Other Parameters|Returns?|Yields?"
    r"|Raises|Examples?|Notes?)[\s*_]*:?[\s*_]*$"
    r"|^\s*:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises)\b[^\n]*:"
    r"|^\s*@(param|type|return|rtype|raise)\b[^\n]*:",
    re.MULTILINE,
)
_TITLE = re.compile(
    r"^[ \t*_#]*(?:Args|Arguments|Parameters|Params|Keyword Arg(?:ument)?s)[ \t*_]*:?[ \t*_]*\n\s*?(?=[ \t]*\S)",
    re.MULTILINE,
)
_ITEM = re.compile(
    r"^([ \t]*)(?:[-*+][ \t]+)?[`*_]{0,2}(\w+)[`*_]{0,2}[ \t]*(?:\([^)\n]*\)[ \t]*)?(?::|[-–—](?=\s))[ \t]*",
    re.MULTILINE,
)
_STYLES = (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST, DocstringStyle.EPYDOC)


def summary(document: str) -> str:
    """A docstring up to its first section; all of it where its list of arguments has an unknown style."""
    found = _SECTION.search(document)
    is_unread = _TITLE.search(document) is not None and not parameter_words(document)
    text = document if found is None or is_unread else document[: found.start()]
    return text.strip()


def parameter_words(document: str) -> dict[str, str]:
    """The words on each parameter, all lines of them: the style that finds most speaks first, and lists in
    nobody's style last."""
    found = [_parse_parameters(style, document) for style in _STYLES]
    found.sort(key=len, reverse=True)
    words: dict[str, str] = {}
    for each in (*found, _parse_parameters(DocstringStyle.GOOGLE, _as_google(document))):
        words = {**each, **words}
    return words


def _as_google(document: str) -> str:
    """Items such as "- `name`: words" and "name - words", under a title that may be in bold, as Google has them."""
    title = _TITLE.search(document)
    if title is None:
        return ""
    listed = _SECTION.split(document[title.end() :], maxsplit=1)[0]
    items = _ITEM.sub(r"\1\2: ", listed)
    return f"Summary.\n\nArgs:\n{indent(dedent(items), '    ')}\n"


def _parse_parameters(style: DocstringStyle, document: str) -> dict[str, str]:
    try:
        read: Docstring = parse(document, style)
    except ParseError:
        return {}
    return {
        name.strip().lstrip("*"): one.description.strip()
        for one in read.params
        if one.description
        for name in one.arg_name.split(",")
    }
