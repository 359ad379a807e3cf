"""What a docstring says: of the function, and of each parameter. Google's, NumPy's, Sphinx's and Epytext's manner."""

from __future__ import annotations

import re

from docstring_parser import DocstringStyle, ParseError, parse
from docstring_parser.common import Docstring

_SECTION = re.compile(
    r"^\s*(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?)\s*:?\s*$"
    r"|^\s*:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises)\b[^\n]*:"
    r"|^\s*@(param|type|return|rtype|raise)\b[^\n]*:",
    re.MULTILINE,
)
_STYLES = (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST, DocstringStyle.EPYDOC)


def summary(document: str) -> str:
    """A docstring up to its first section."""
    found = _SECTION.search(document)
    text = document if found is None else document[: found.start()]
    return text.strip()


def parameter_words(document: str) -> dict[str, str]:
    """What a docstring says of each parameter, all its lines, by the style that finds most."""
    found = [_words(style, document) for style in _STYLES]
    return max(found, key=len)


def _words(style: DocstringStyle, document: str) -> dict[str, str]:
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
