"""Results of importers, and their texts as a tool file has to write them.

Invariant: an imported text is data. Written by `escaped`, it reads as it was, whatever `${...}` it holds; what the
environment fills in is a `FromEnvironment`, which only rlf and the user's own settings make.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlf.core.errors import RlfError

Json = dict[str, Any]

# Backslashes before `${` count in OmegaConf: each has to be doubled when the text is escaped.
_REFERENCE = re.compile(r"(\\*)\$\{")
_VARIABLE = re.compile(r"(?<!\\)\$\{oc\.env:([A-Za-z_]\w*)(?:,'(?:[^'\\]|\\.)*')?\}")


class FromEnvironment(str):
    """A text of a declaration whose `${oc.env:NAME}` the environment fills in; other references in it are escaped.

    Text made of it (by `+`, `replace`, an f-string) is plain again, so that a reference never survives by accident.
    """

    __slots__ = ()

    @property
    def variables(self) -> list[str]:
        """The names in it."""
        return _VARIABLE.findall(self)


@dataclass(slots=True)
class Imported:
    """The tools that an importer found at a source."""

    tools: list[Json] = field(default_factory=list)
    """Declarations as a tool file holds them, with texts as they are read."""
    left_out: list[str] = field(default_factory=list)
    """What no declaration can be made of, with the reason."""
    notes: list[str] = field(default_factory=list)
    """Choices made for the user."""


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its texts, but for keys, changed."""
    if isinstance(value, dict):
        return {key: map_texts(child, change) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(child, change) for child in value]
    return change(value) if isinstance(value, str) else value


def escaped(value: Any) -> Any:
    """A declaration's value with texts as a file writes them, so that `${...}` in them stays text."""
    return map_texts(value, _escape_text)


def _escape_text(text: str) -> str:
    return escape_all_but_variables(text) if isinstance(text, FromEnvironment) else escape_references(text)


def escape_references(text: str) -> str:
    r"""The text with `\${` for `${`, and backslashes before it doubled, as OmegaConf reads them."""
    return _REFERENCE.sub(r"\1\1\\${", text)


def escape_all_but_variables(text: str) -> str:
    """The text with every reference escaped but `${oc.env:NAME}`, with or without a default in quotes."""
    parts, end = [], 0
    for match in _VARIABLE.finditer(text):
        parts += [escape_references(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, escape_references(text[end:])])


def refuse_references(address: str) -> None:
    """Raises RlfError for an imported address with `${...}`: its author would receive the value."""
    if "${" in address:
        raise RlfError(
            f"{address}: the address holds a reference `${{...}}`; addresses of imported files are plain text. "
            "Write the address out; credentials go into headers or the query of the written file."
        )


def with_stand_ins(value: Any) -> Any:
    """The declaration with a word in place of each variable of the environment, to be checked without them."""
    return map_texts(
        value, lambda text: _VARIABLE.sub("filled-in", text) if isinstance(text, FromEnvironment) else text
    )


def variables_of(value: Any) -> list[str]:
    """The environment variables that a declaration is filled in with."""
    if isinstance(value, FromEnvironment):
        return value.variables
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return list(dict.fromkeys(name for child in children for name in variables_of(child)))
