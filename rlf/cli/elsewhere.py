"""Command lines as other programs have them, and what to write here instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

_KEY = re.compile(r"--[a-z_]+\..+")


def command_for(words: Sequence[str]) -> str | None:
    """What to write for words of which the first is a command of other programs."""
    from rlf.core.mistakes import known

    if words[0] == "help" and len(words) > 1:
        return f"{shlex.join(words[1:])} --help"
    return known("commands").get(words[0])  # type: ignore[no-any-return]  # the table maps texts to texts


def explain_usage(error: Any, arguments: Sequence[str]) -> str | None:
    """What is wrong with a command line, and what to write; None where typer's own words say it.

    Args:
        error: what the command line raised.
        arguments: those of the command.
    """
    option, context = str(getattr(error, "option_name", "")), error.ctx
    command, path = getattr(context, "command", None), getattr(context, "command_path", "")
    from rlf.core.mistakes import explain

    again = shlex.join(text for text in arguments if text[:1] != "-")
    if known := explain("usage", f"{getattr(command, 'name', '')} {error}\n{again}\n{path}", again=again):
        return known[0]
    parameters = getattr(command, "params", ())
    if (value := _value_of(option, arguments)) is not None and any("KEY=" in str(each.metavar) for each in parameters):
        from rlf.runs.completion import find_keys

        keys = [option[2:]] if _KEY.fullmatch(option) else find_keys(option[2:].replace("-", "_"))
        if keys:
            write = " or ".join(shlex.quote(f"{key}={value or 'VALUE'}") for key in keys)
            return f"{option}: an override starts without dashes. Write {write}."
    return _in_our_words(error, option, [name for each in parameters for name in each.opts], arguments)


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    """What stands behind an option, empty where nothing does; None where the option is not there."""
    at = next((at for at, text in enumerate(arguments) if text.partition("=")[0] == option), None)
    if at is None:
        return None
    following = "".join(text for text in arguments[at + 1 : at + 2] if text[:1] != "-")
    return arguments[at].partition("=")[2] or following


def _in_our_words(error: Any, option: str, names: Sequence[str], arguments: Sequence[str]) -> str | None:
    """An option that there is not, a value that is none, a word too much: with what the command takes."""
    from rlf.core.registry import nearest

    path, text = error.ctx.command_path if error.ctx else "rlf", str(error)
    if "No such option" in text:
        options = sorted({name for name in names if name.startswith("--")} | {"--help"})
        return f"{option}: {path} has no such option{nearest(option, options) or '.'} It has {', '.join(options)}."
    if "unexpected extra" in text:
        usage = " ".join(error.ctx.get_usage().split()).removeprefix("Usage: ")
        return f"got {text.rpartition('(')[2].rstrip(').')}, a word too much. Write `{usage}`."
    if "requires an argument" in text:
        return f"{option} takes a value. Write `{option} VALUE`; `--help` shows which."
    name = getattr(getattr(error, "param", None), "opts", [""])[0]
    if chosen := re.fullmatch(r"(?:Value error, )?'(?P<got>.*)' is not one of (?P<all>.*)\.", text):
        known = re.findall("'([^']*)'", chosen["all"])
        close = nearest(chosen["got"], known)
        return f"{name}: got {chosen['got']!r}{close or ';'} expected {', '.join(known)}. Write one of these."
    if number := re.search(r"Input should be a valid (integer|number)", text):
        what, example = ("a whole number", 10) if number[1] == "integer" else ("a number", 0.5)
        got = f"got {value!r}; " if (value := _value_of(name, arguments)) else ""
        write = f"{name} {example}" if name[:1] == "-" else f"{path} ... {example}"
        return f"{name if name[:1] == '-' else name.upper()}: {got}expected {what}. Write e.g. `{write}`."
    return None
