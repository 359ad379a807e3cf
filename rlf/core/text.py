"""Text from outside as rlf holds it: valid Unicode, without NUL, bounded.

Whatever the code of others, a server or a file says passes here where it enters, whether it is a result, an error or a
name; a `Redactor` then strikes the secrets out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rlf.core.characters import clean as clean
from rlf.core.redact import strike_environment

MAX_FAULT_CHARS = 4096
"""Longest description of an exception. Longer than what anyone is shown, so that secrets are found before the cut."""
_HALF = re.compile("[\ud800-\udfff]")
_MAX_NAME_CHARS = 200
_MAX_PARTS = 3
"""Notes of an exception, and exceptions of a group, that are repeated."""
_MAX_DEPTH = 3
"""Groups within groups whose exceptions are named."""


def join_halves(text: str) -> str:
    """The text with halves of surrogate pairs joined, as JSON and YAML escape them; others stay as they are."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def find_half(text: str) -> str | None:
    """`U+D83D`: the first half of a surrogate pair that stands alone; None where there is none."""
    found = None if text.isascii() else _HALF.search(join_halves(text))
    return None if found is None else f"U+{ord(found[0]):04X}"


def clean_value(value: Any) -> Any:
    """A JSON value whose texts and keys are valid; the very value where they are."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean_value(key): clean_value(item) for key, item in value.items()}
    return [clean_value(item) for item in value] if isinstance(value, list) else value


def size_bytes(text: str) -> int:
    """Length in UTF-8 of a valid text."""
    return len(text) if text.isascii() else len(text.encode())


def describe(fault: BaseException) -> str:
    """Class and text of an exception, its notes, and the exceptions of a group, whatever their own code does.

    Without the secrets of the environment: code of others names them in its faults, and it may run where nothing else
    strikes them out.
    """
    return strike_environment(clean(_describe(fault, _MAX_DEPTH)[:MAX_FAULT_CHARS]))


def text_of(fault: BaseException) -> str:
    """An exception's own text, whatever its code does; its class where it has none."""
    return strike_environment(clean(_own_text(fault))) or _name(type(fault))


def _own_text(fault: BaseException) -> str:
    try:
        return str.__str__(str(fault))[:MAX_FAULT_CHARS]
    except BaseException as other:  # noqa: BLE001 - `__str__` is the code of others and may raise anything
        return f"its text cannot be shown ({_name(type(other))})"


def _describe(fault: BaseException, depth: int) -> str:
    name, text = _name(type(fault)), _own_text(fault)
    parts = [f"{name}: {text}" if text else name, *_notes(fault)]
    if isinstance(fault, BaseExceptionGroup) and depth:
        parts += [_describe(each, depth - 1) for each in fault.exceptions[:_MAX_PARTS]]
    return "; ".join(parts)


def _name(kind: type[BaseException]) -> str:
    name: str = type.__getattribute__(kind, "__name__")  # past what a metaclass may say
    return name[:_MAX_NAME_CHARS]


def _notes(fault: BaseException) -> Iterator[str]:
    try:
        notes = fault.__notes__
    except BaseException:  # noqa: BLE001 - an attribute of the code of others may raise anything
        return
    if type(notes) is list:
        yield from (str.__str__(note)[:MAX_FAULT_CHARS] for note in notes[:_MAX_PARTS] if isinstance(note, str))
