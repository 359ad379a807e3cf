"""Text from outside as rlf holds it: valid Unicode, without NUL, bounded.

Whatever the code of others, a server or a file says passes here where it enters, whether it is a result, an error or a
name; a `Redactor` then strikes the secrets out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from rlf.core.redact import clean as clean
from rlf.core.redact import strike_environment

MAX_FAULT_CHARS = 16_384
"""Longest description of an exception. Far longer than what anyone is shown, so that secrets are found before the cut,
also where each is some thousand characters long and none is left of those before."""
MAX_ERROR_CHARS = 500
"""Longest error text the model is shown."""
_MAX_DESCRIBING_S = 1.0
"""Time that an exception has for its own text: the event loop may wait for it."""
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


def list_some(names: Sequence[str], num_shown: int = 3) -> str:
    """`a, b, c and 2 more`: the first names, and how many more there are."""
    more = f" and {len(names) - num_shown} more" if len(names) > num_shown else ""
    return f"{', '.join(names[:num_shown])}{more}"


def shorten(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    """The text, cut with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def show_value(value: object, limit: int = 80) -> str:
    """A value of a file or a program as messages show it; a text that is cut has its quotes."""
    return repr(shorten(value, limit)) if isinstance(value, str) else shorten(repr(value), limit)


def count_shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How many of their first characters, or tokens, are alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def size_bytes(text: str) -> int:
    """Length in UTF-8 of a valid text."""
    return len(text) if text.isascii() else len(text.encode())


def describe(fault: BaseException) -> str:
    """Class and text of an exception, its notes, and the exceptions of a group, whatever their own code does.

    Without the secrets of the environment: code of others names them in its faults, and it may run where nothing else
    strikes them out.
    """
    words = _in_time(fault, lambda: _describe(fault, _MAX_DEPTH))
    return strike_environment(clean(words[:MAX_FAULT_CHARS]))


def text_of(fault: BaseException) -> str:
    """An exception's own text, whatever its code does; its class where it has none."""
    return strike_environment(clean(_in_time(fault, lambda: _own_text(fault)))) or _name(type(fault))


def _in_time(fault: BaseException, describe_it: Callable[[], str]) -> str:
    """What `describe_it` says of an exception; its class where code of its own takes too long for it."""
    if _runs_no_own_code(fault):
        return describe_it()
    words: list[str] = []

    def work() -> None:
        with suppress(BaseException):  # what the code of others raises here nobody could be shown
            words.append(describe_it())

    worker = Thread(target=work, daemon=True)
    try:
        worker.start()
        worker.join(_MAX_DESCRIBING_S)
    except RuntimeError:  # no thread is to be had, or Python ends
        pass
    return words[0] if words else f"{_name(type(fault))}: its text cannot be shown"


def _runs_no_own_code(fault: BaseException) -> bool:
    """Whether no code but Python's own runs where an exception is shown."""
    if issubclass(type(fault), BaseExceptionGroup):  # what is in it may
        return False
    for kind in _of_class(type(fault), "__mro__"):
        # a class of Python's own cannot be changed, and `__module__` may be written by anyone
        is_own = not _of_class(kind, "__flags__") & _HEAP_TYPE
        if not is_own and not _SHOWING.isdisjoint(_of_class(kind, "__dict__")):
            return False
    return all(type(part) in _PLAIN for part in BaseException.args.__get__(fault))  # type: ignore[attr-defined]


_HEAP_TYPE = 1 << 9
"""`Py_TPFLAGS_HEAPTYPE`: classes that a program has made."""
_SHOWING = frozenset({"__str__", "__repr__", "__getattribute__", "__getattr__", "__notes__", "args"})
"""Attributes by which a class runs code of its own where one of it is shown."""
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


def _own_text(fault: BaseException) -> str:
    try:
        return str.__str__(str(fault))[:MAX_FAULT_CHARS]
    except BaseException as other:  # noqa: BLE001 - `__str__` is the code of others and may raise anything
        return f"its text cannot be shown ({_name(type(other))})"


def _describe(fault: BaseException, depth: int) -> str:
    name, text = _name(type(fault)), _own_text(fault)
    parts = [f"{name}: {text}" if text else name, *_notes(fault)]
    # `isinstance` asks the exception itself for its class
    if depth and issubclass(type(fault), BaseExceptionGroup) and isinstance(fault, BaseExceptionGroup):
        parts += [_describe(each, depth - 1) for each in fault.exceptions[:_MAX_PARTS]]
    return "; ".join(parts)


def class_names(fault: BaseException) -> set[tuple[str, str]]:
    """The outermost package and the name of an exception's class and of those that it inherits from."""
    kinds = _of_class(type(fault), "__mro__")
    return {(str.partition(_module(kind), ".")[0], _name(kind)) for kind in kinds}


def _module(kind: type) -> str:
    module = _of_class(kind, "__module__")
    return module if type(module) is str else ""


def _name(kind: type) -> str:
    name: str = _of_class(kind, "__name__")
    return name[:_MAX_NAME_CHARS]


def _of_class(kind: type, name: str) -> Any:
    """An attribute that every class has, past whatever its metaclass says."""
    return type.__dict__[name].__get__(kind)


def _notes(fault: BaseException) -> Iterator[str]:
    try:
        notes = fault.__notes__
    except BaseException:  # noqa: BLE001 - an attribute of the code of others may raise anything
        return
    if type(notes) is list:
        yield from (str.__str__(note)[:MAX_FAULT_CHARS] for note in notes[:_MAX_PARTS] if isinstance(note, str))
