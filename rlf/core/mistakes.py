"""Mistakes that are known by their form: `mistakes.yaml` has the forms by topic, with what to say or what is meant."""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from traceback import walk_tb
from typing import Any

from rlf.core.process import OWN, library_folders, show_place
from rlf.core.redact import strike_environment
from rlf.core.text import describe
from rlf.core.yaml_text import load_document


@cache
def known(topic: str) -> Any:
    """What the table has of a topic."""
    return load_document(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))[topic]


def explain(topic: str, text: str, **values: object) -> tuple[str, str] | None:
    """The sentence for the first form that a text has, and its place in the topic's own words; None for another text.

    Args:
        values: what the sentence may name, beside the named groups of the form.
    """
    for form in known(topic):
        if found := re.search(form["seen"], text):
            return form["says"].format(**values, **found.groupdict()), form.get("at", "")
    return None


def in_our_words(topic: str, text: str) -> str:
    """A text with every form of a topic as rlf has it."""
    for theirs, ours in known(topic).items():
        text = re.sub(theirs, ours, text)
    return text


def advise_column(role: str, column: str, names: Sequence[str], file: str) -> str:
    """What to write for a column that is none of a file's: a template, or the name that the role usually has."""
    if template := explain("columns", f"{role} {column}"):
        return f" {template[0]}"
    usual = [name for name in known("usual columns").get(role, ()) if name in names]
    header = " The first line of a CSV file names its columns." if file.endswith(".csv") else ""
    fix = ", or write `answer: null` when no reward term needs it" if role == "answer" else ""
    return f"{header} Name the column with the {role}{f', e.g. `{role}: {usual[0]}`' if usual else ''}{fix}."


def not_utf8(data: bytes, what: str) -> str:
    """The sentence about bytes that are not UTF-8, with the encoding that they seem to be in, and the way out of it."""
    at = len(re.split("[\udc80-\udcff]", data.decode(errors="surrogateescape"), maxsplit=1)[0].encode())
    seen, name = f"byte {at} is 0x{data[at]:02x}: Latin-1 or Windows-1252, it seems", "WINDOWS-1252"
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):
        name = "UTF-32" if b"\0\0" in data[:4] else "UTF-16"
        seen = f"it is {name}"
    elif b"\0" in data or data.startswith(b"\x1f\x8b"):
        return f"this is no text: it has bytes as images and archives do. {what} is UTF-8 text. Name another file."
    fix = f"Save it as UTF-8, e.g. `iconv -f {name} -t UTF-8 OLD > NEW`."
    return f"this is not UTF-8; {seen}. {what} is UTF-8 text. {fix}"


def import_fault(name: str, fault: BaseException) -> str:
    """The message for a callable whose module cannot be had: where the error is, and what to do about it."""
    place = name.rpartition(":")[0] or name
    if place.endswith(".py") and not Path(place).is_file():
        # as it may be written from the current folder: the last parts of the path
        tails = [Path(*Path(place).parts[at:]) for at in range(1, len(Path(place).parts))]
        tail = next((tail for tail in tails if tail.is_file()), None)
        meant = tail and os.path.relpath(tail, str(Path(place).absolute()).removesuffix(str(tail)))
        close = f"; did you mean {meant!r}?" if meant else "."
        return f"cannot import {name!r}: no file {place}{close} Paths start at the file that names them. Correct it."
    words = f"cannot import {name!r}: {describe(fault)}{_show_place_of(fault)}."
    if not isinstance(fault, ModuleNotFoundError):
        return f"{words} Correct it there; `python {show_place(place)}` runs it alone."
    missing = strike_environment(fault.name or "").partition(".")[0]
    beside = Path(place).parent / f"{missing}.py"
    if missing == place.partition(".")[0]:
        return f"{words} Install the package that holds it, or name a file: `./file.py:name`."
    if beside.is_file():
        return f"{words} Imports start at the current folder, not at {show_place(str(beside))}: import it from there."
    return f"{words} {install(missing)}"


def install(missing: str) -> str:
    """What to do where a module is not there."""
    return f"Run `pip install {missing}` where it is a package, or correct the import."


def _show_place_of(fault: BaseException) -> str:
    """` (code/look.py:3)`: the last line outside of libraries that an error passed through, or that is no Python."""
    lines = [(fault.filename, fault.lineno)] if isinstance(fault, SyntaxError) else []
    lines += [(frame.f_code.co_filename, line) for frame, line in reversed([*walk_tb(fault.__traceback__)])]
    own = [(file, line) for file, line in lines if file and not file.startswith(("<", OWN, *library_folders()))]
    return f" ({show_place(own[0][0])}:{own[0][1]})" if own else ""


# Calls that block, found in the source of an `async def`: it stops every other trajectory while it waits.

_BLOCKING = {
    "time": ("sleep",),
    "subprocess": ("run", "call", "check_call", "check_output"),
    "os": ("system", "wait", "waitpid"),
    "urllib.request": ("urlopen", "urlretrieve"),
    "requests.api": ("get", "post", "put", "patch", "delete", "head", "options", "request"),
}
"""Functions by the module that defines them."""


def blocking_calls(function: Callable[..., Any]) -> list[str]:
    """Names of the blocking functions that a coroutine function calls itself; none where its source is not known."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.iscoroutinefunction(function):
        function = getattr(function, "__call__", function)  # noqa: B004 - the method itself is read
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return []
    known = getattr(function, "__globals__", {})
    return list(dict.fromkeys(name for name in _name_called(tree.body[0]) if _is_blocking(name, known)))


def _name_called(node: ast.AST) -> Iterator[str]:
    """Dotted names that are called below a node, those within functions of its own left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.Call):
            yield ast.unparse(child.func)
        yield from _name_called(child)


def _is_blocking(name: str, known: dict[str, Any]) -> bool:
    first, *rest = name.split(".")
    found = known.get(first)
    for part in rest:
        found = getattr(found, part, None)
    return any(
        getattr(found, "__name__", None) == blocking and _defining_module(found) == module
        for module, names in _BLOCKING.items()
        for blocking in names
    )


def _defining_module(found: Any) -> str | None:
    """The module that defines a function; `os` for those of its own kind of system."""
    module = getattr(found, "__module__", None)
    return "os" if module in ("posix", "nt") else module
