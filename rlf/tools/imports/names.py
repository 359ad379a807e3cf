"""Names made of what others wrote: of environment variables that a shell can set, and of tools. Pure."""

from __future__ import annotations

import re

_NOT_IN_A_VARIABLE = re.compile(r"[^A-Z0-9]+")
_NOT_IN_A_TOOL = re.compile(r"[^A-Za-z0-9_-]+")
MAX_TOOL_NAME = 64


def variable_name(*parts: str) -> str:
    """The parts as the name of an environment variable; one whose beginning repeats the end before it stands once."""
    words: list[str] = []
    for part in parts:
        own = [word for word in _NOT_IN_A_VARIABLE.sub(" ", part.upper()).split() if word]
        kept = next(n for n in range(min(len(own), len(words)), -1, -1) if words[len(words) - n :] == own[:n])
        words += own[kept:]
    name = "_".join(words) or "SERVICE"
    return f"_{name}" if name[0].isdigit() else name


def tool_name(text: str) -> str:
    """A text as the name of a tool, of any length."""
    name = _NOT_IN_A_TOOL.sub("_", text).strip("_-") or "tool"
    return f"_{name}" if name[0].isdigit() else name


def unique_name(name: str, taken: set[str]) -> str:
    """The name within the length that tools may have, with a number where another has it but for its case.

    File systems may hold names without their case.

    Args:
        taken: names in lower case; the returned one is added.
    """
    found = next(
        one for number in range(1, len(taken) + 2) if (one := _number_name(name, number)).casefold() not in taken
    )
    taken.add(found.casefold())
    return found


def _number_name(name: str, number: int) -> str:
    end = "" if number == 1 else f"_{number}"
    return name[: MAX_TOOL_NAME - len(end)] + end
