"""Characters that no file, database or model takes. The door that text from outside passes is `rlf.core.text`."""

from __future__ import annotations


def clean(text: str) -> str:
    """The text without what no file or database takes: halves of surrogate pairs are joined, or become U+FFFD with NUL.

    A subclass of `str`, whose methods may be the code of others, becomes a plain one.
    """
    if type(text) is not str:
        text = str.__str__(text)
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
