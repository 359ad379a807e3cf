"""Mutation operators: slips that models make when they write calls, each a function of one turn's text.

An operator spoils how a call is written, never what it says: it touches no character of an argument's text. So a parser
may read the call that was meant, or fail with a type; any other call is a false execution. What an operator makes
unreadable on purpose (thinking around a call) may not be run at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

Mutate = Callable[["Sample", Random], str]

# The marks of all formats at once: tags, bracketed words, fences and labels. Length limits keep prose out.
_OPENING = re.compile(r"<[^<>\n/]{1,40}>|\[[A-Z_]{3,}\]|```\w*|\b(?:Action|Action Input):")
_CLOSING = re.compile(r"</[^<>\n]{1,40}>|<\|[^<>\n]*(?:end|call)\|>|<｜[^<>\n]*end｜>|```(?!\w)")
_MARK = re.compile(rf"{_OPENING.pattern}|{_CLOSING.pattern}")


@dataclass(frozen=True, slots=True)
class Sample:
    """A turn and where its arguments' texts stand."""

    text: str
    tool: str
    """The tool that it calls."""
    contents: tuple[str, ...]
    """Texts of arguments as they are written in the turn; an operator leaves them as they are."""
    thinking: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
    """What the format writes before and after thinking."""

    def places(self, pattern: str | re.Pattern[str]) -> tuple[re.Match[str], ...]:
        """Where a pattern matches outside the arguments' texts."""
        return _find_outside(self.text, self.contents, pattern)


@lru_cache(maxsize=1024)
def _find_outside(text: str, contents: tuple[str, ...], pattern: str | re.Pattern[str]) -> tuple[re.Match[str], ...]:
    """Matches of a pattern in a text that touch none of the contents; an operator is tried on the same text again."""
    spans = _find_spans(text, contents)
    return tuple(
        match
        for match in re.finditer(pattern, text)
        if not any(match.end() > start and match.start() < end for start, end in spans)
    )


@lru_cache(maxsize=1024)
def _find_spans(text: str, contents: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(found.span() for content in contents for found in re.finditer(re.escape(content), text))


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to spoil a turn."""

    name: str
    mutate: Mutate
    may_run: bool = True
    """Whether the call that was meant may still be run."""
    is_cut: bool = False
    """Whether the turn is cut by its token limit."""
    thinks: bool = False
    """Whether it opens or ends thinking; two such operators together may well say that a call is meant."""


def _replace_one(pattern: str | re.Pattern[str], by: str | Callable[[str], str], *, last: bool = False) -> Mutate:
    """Replaces one match outside the arguments' texts."""

    def mutate(sample: Sample, random: Random) -> str:
        places = sample.places(pattern)
        if not places:
            return sample.text
        place = places[-1] if last else random.choice(places)
        new = by(place.group()) if callable(by) else by
        return sample.text[: place.start()] + new + sample.text[place.end() :]

    return mutate


def _replace_all(pattern: str | re.Pattern[str], by: str | Callable[[str], str]) -> Mutate:
    """Replaces every match outside the arguments' texts."""

    def mutate(sample: Sample, random: Random) -> str:
        text = sample.text
        for place in reversed(sample.places(pattern)):
            text = text[: place.start()] + (by(place.group()) if callable(by) else by) + text[place.end() :]
        return text

    return mutate


def _rename_key(key: str, by: str) -> Mutate:
    """Renames a key of the call itself; an argument may have the same name."""

    def mutate(sample: Sample, random: Random) -> str:
        tool = re.escape(sample.tool)
        pattern = rf'"name"(?=: "{tool}")' if key == "name" else rf'(?<="{tool}", )"{key}"'
        return _replace_one(pattern, f'"{by}"')(sample, random)

    return mutate


def _put_around(before: str, after: str) -> Mutate:
    return lambda sample, random: before + sample.text + after


def _put_in_thinking(sample: Sample, random: Random) -> str:
    opening, closing = sample.thinking
    return f"{opening}I could write {sample.text}{closing}It is 42."


def _cut_sample(sample: Sample, random: Random) -> str:
    return sample.text[: random.randrange(1, max(2, len(sample.text)))]


def _drop_character(sample: Sample, random: Random) -> str:
    places = sample.places(r"[{}\[\]\"<>|:,/]")
    if not places:
        return sample.text
    place = random.choice(places)
    return sample.text[: place.start()] + sample.text[place.end() :]


def _double_character(sample: Sample, random: Random) -> str:
    places = sample.places(r"[{}\[\]\"<>|,]")
    if not places:
        return sample.text
    place = random.choice(places)
    return sample.text[: place.end()] + sample.text[place.start() :]


def _swap_lines(sample: Sample, random: Random) -> str:
    places = sample.places(r"(?m)^(.*)\n(.*)$")
    if not places:
        return sample.text
    place = random.choice(places)
    return f"{sample.text[: place.start()]}{place[2]}\n{place[1]}{sample.text[place.end() :]}"


def _insert_text(what: str) -> Mutate:
    """Puts text between two marks of the call."""

    def mutate(sample: Sample, random: Random) -> str:
        places = sample.places(_MARK)
        at = random.choice(places).end() if places else 0
        return sample.text[:at] + what + sample.text[at:]

    return mutate


def _misspell_mark(mark: str) -> str:
    return mark.replace("_", "-") if "_" in mark else mark.replace("o", "0", 1)


_NAMED: Sequence[tuple[str, Mutate]] = (
    ("trailing comma", _replace_one(r"(?<=[\"\d}\]])(?=[}\]])", ",")),
    ("single quotes", _replace_all('"', "'")),
    ("one single quote", _replace_one('"', "'")),
    ("curly quotes", _replace_all('"', "\u201d")),
    ("missing brace", _replace_one(r"\}", "", last=True)),
    ("missing bracket", _replace_one(r"\]", "", last=True)),
    ("extra brace", _replace_one(r"\}", "}}", last=True)),
    ("extra opening brace", _replace_one(r"\{", "{{")),
    ("missing colon", _replace_one(":", "")),
    ("equals for colon", _replace_one(":", "=")),
    ("missing comma", _replace_one(r",(?= )", "")),
    ("double comma", _replace_one(r",(?= )", ",,")),
    ("unquoted key", _replace_one(r'"\w+"(?=: )', lambda key: key.strip('"'))),
    ("parameters for arguments", _rename_key("arguments", "parameters")),
    ("args for arguments", _rename_key("arguments", "args")),
    ("tool for name", _rename_key("name", "tool")),
    ("capital name", _rename_key("name", "Name")),
    ("drop an opening mark", _replace_one(_OPENING, "")),
    ("drop a closing mark", _replace_one(_CLOSING, "")),
    ("drop the last mark", _replace_one(_MARK, "", last=True)),
    ("double an opening mark", _replace_one(_OPENING, lambda mark: mark * 2)),
    ("double a closing mark", _replace_one(_CLOSING, lambda mark: mark * 2)),
    ("misspelt mark", _replace_one(_MARK, _misspell_mark)),
    ("capital mark", _replace_one(_MARK, str.upper)),
    ("space in a mark", _replace_one(_MARK, lambda mark: mark[:1] + " " + mark[1:])),
    ("mark without its end", _replace_one(_MARK, lambda mark: mark[:-1])),
    ("opening mark for a closing one", _replace_one(r"</(?=\w)", "<")),
    ("closing mark for an opening one", _replace_one(r"<(?=[a-z])", "</")),
    ("another family's tags", _replace_all("tool_call(?=>)", "function_call")),
    ("code fence around the turn", _put_around("```json\n", "\n```")),
    ("code fence inside", _insert_text("```json\n")),
    ("words before", _put_around("I will look it up.\n", "")),
    ("words after", _put_around("", "\nLet me see.")),
    ("words inside", _insert_text(" so ")),
    ("comment inside", _insert_text(" // the call\n")),
    ("no white space", _replace_all(r"\n", "")),
    ("more white space", _replace_all(r"\n", "\n\n  ")),
    ("windows line ends", _replace_all(r"\n", "\r\n")),
    ("zero-width space", _insert_text("\u200b")),
    ("byte order mark", _put_around("\ufeff", "")),
    ("null byte", _insert_text("\0")),
    ("swapped lines", _swap_lines),
    ("drop a character", _drop_character),
    ("double a character", _double_character),
    ("twice", lambda sample, random: sample.text + "\n" + sample.text),
)
OPERATORS: tuple[Operator, ...] = (
    *(Operator(name, mutate) for name, mutate in _NAMED),
    Operator("cut", _cut_sample, is_cut=True),
    Operator("stray thinking end", lambda sample, random: sample.thinking[1].strip() + sample.text, thinks=True),
    Operator("inside thinking", _put_in_thinking, may_run=False, thinks=True),
    Operator(
        "inside open thinking", lambda sample, random: sample.thinking[0] + sample.text, may_run=False, thinks=True
    ),
)
"""In a fixed order; those that wrap the whole turn come last, so that in a pair they are applied last."""
