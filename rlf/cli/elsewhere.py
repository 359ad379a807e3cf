"""Command lines as other programs have them, and what to write here instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_KEY = re.compile(r"--[a-z_]+\..+")


def command_for(word: str) -> str | None:
    """What to write for a word that other programs have for a command."""
    from rlf.core.mistakes import known

    return known("commands").get(word)  # type: ignore[no-any-return]  # the table maps texts to texts


def override_for(error: BaseException, arguments: Sequence[str]) -> str | None:
    """The fix for an override in the form of an option: `--train.steps 3`, `--steps 3`; None for anything else.

    Args:
        error: what the command line raised.
        arguments: those of the command.
    """
    option = str(getattr(error, "option_name", ""))
    context = getattr(error, "ctx", None)
    command, path = getattr(context, "command", None), getattr(context, "command_path", "")
    from rlf.core.mistakes import explain

    again = shlex.join(text for text in arguments if text[:1] != "-")
    if known := explain("usage", f"{getattr(command, 'name', '')} {error}\n{again}\n{path}", again=again):
        return known[0]
    takes_overrides = any("KEY=VALUE" in str(parameter.metavar) for parameter in getattr(command, "params", ()))
    places = [at for at, text in enumerate(arguments) if text.partition("=")[0] == option]
    if not takes_overrides or not places:
        return None
    from rlf.runs.completion import find_keys

    keys = [option[2:]] if _KEY.fullmatch(option) else find_keys(option[2:].replace("-", "_"))
    if not keys:
        return None
    following = arguments[places[0] + 1 : places[0] + 2]
    value = arguments[places[0]].partition("=")[2] or "".join(text for text in following if text[:1] != "-") or "VALUE"
    write = " or ".join(shlex.quote(f"{key}={value}") for key in keys)
    return f"{option}: an override starts without dashes. Write {write}."
