"""Slips that models make when they write calls, and what a parser makes of each, counted.

An operator spoils how a call is written, never what it says: it touches no character of an argument's text. So a
parser may read the call that was meant, or fail with a type; any other call is a false execution. What an operator
makes unreadable on purpose (thinking around a call) may not be run at all.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import combinations, product
from random import Random
from typing import Any

from rlf.chat.examples import NUM_VARIANTS, example_call
from rlf.chat.format import ChatFormat
from rlf.chat.marks import ParsedTurn
from rlf.chat.repair import repaired
from rlf.core import RlfError, derive_seed
from rlf.types import ToolCall, ToolDescription

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


class Outcome(StrEnum):
    """Outcome of one mutated call. Each call has exactly one."""

    RECALLED = "recalled"
    """The call was read as it was meant."""
    REPAIRED = "repaired"
    """A failure that a safe repair turns into the call that was meant."""
    ALTERED = "altered"
    """The mutation fell into an argument that the format writes as bare text, where any text is meant."""
    REFUSED = "refused"
    """A call that the tool's schema does not allow: answered, not run."""
    TYPED = "typed"
    """A failure with its class, answered by a corrective observation."""
    GONE = "gone"
    """The mutation left nothing of a call to see, and nothing was run."""
    SILENT_LOSS = "silent_loss"
    """The call is still there to see, and the turn was taken for an answer. Must not be."""
    FALSE_EXECUTION = "false_execution"
    """Another call would be run than was meant, or one that was only thought of. Must not be."""
    CRASH = "crash"
    """The parser raised. Must not be."""


WRONG = (Outcome.SILENT_LOSS, Outcome.FALSE_EXECUTION, Outcome.CRASH)
_MAX_FINDINGS = 20

Reader = Callable[[str, bool], ParsedTurn]
"""Reads a turn: its text, and whether it was cut."""
Accepts = Callable[[ToolCall], bool]
"""Whether the tool's schema allows a call."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One wrong outcome, to look at."""

    outcome: Outcome
    operators: tuple[str, ...]
    text: str
    detail: str


@dataclass(slots=True)
class Tally:
    """One tool in one format."""

    format: str
    tool: str
    num_identity_failures: int = 0
    """Canonical calls that do not read back as themselves. Must be 0."""
    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    findings: list[Finding] = field(default_factory=list)
    is_complete: bool = True
    """False when the time was up before every pair was tried."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, run by mistake or broken."""
        return not self.num_identity_failures and not any(self.counts[outcome] for outcome in WRONG)


def fuzz(
    chat: ChatFormat,
    name: str,
    tool: ToolDescription,
    *,
    seed: int,
    budget_s: float,
    accepts: Accepts,
    reader: Reader | None = None,
    part: tuple[int, int] = (0, 1),
) -> Tally:
    """Tries every operator, then every pair of them, on canonical calls of a tool.

    Args:
        part: which of how many parts of the pairs; formats share what reads them.
        budget_s: seconds after which no more pairs are tried.
        accepts: what it refuses is never run.
        reader: another parser than the format's own, for comparison; safe repairs are not tried on it.
    """
    tally, deadline = Tally(name, tool.name), time.monotonic() + budget_s
    random = Random(derive_seed(seed, name, tool.name))
    read: Reader = reader or (lambda text, cut: chat.parse(text, truncated=cut))
    opening = chat.thinking_marks[1] if chat.begins_thinking else ""
    samples = list(_make_samples(chat, tool))
    tally.num_identity_failures = sum(_read_calls(read, opening + sample.text) != (call,) for sample, call in samples)
    # Where thinking ends with its line, a call on the next line is meant.
    can_wrap = bool(chat.thinking_marks[1].strip())
    repair = chat if reader is None else None
    judged: dict[tuple[str, str, bool, bool], tuple[Outcome, str]] = {}  # many pairs write the same
    for operators, (sample, call) in product(_choose_operators(can_wrap, part), samples):
        if len(operators) > 1 and time.monotonic() > deadline:
            tally.is_complete = False
            break
        mutant = sample.text
        for operator in operators:
            before = sample if mutant is sample.text else replace(sample, text=mutant)
            mutant = operator.mutate(before, random)
        if mutant != sample.text:
            cut = any(operator.is_cut for operator in operators)
            key = (mutant, sample.text, cut, all(operator.may_run for operator in operators))
            if key not in judged:
                judged[key] = _judge_mutant(repair, read, accepts, opening + mutant, sample.text, call, *key[2:])
            outcome, detail = judged[key]
            tally.counts[outcome] += 1
            if outcome in WRONG and len(tally.findings) < _MAX_FINDINGS:
                names = tuple(operator.name for operator in operators)
                tally.findings.append(Finding(outcome, names, mutant, detail))
    return tally


def _make_samples(chat: ChatFormat, tool: ToolDescription) -> Iterator[tuple[Sample, ToolCall]]:
    """Canonical calls with every variant of arguments that the format can write; a second like the first is left out.

    Raises RlfError when it can write none.
    """
    seen: list[ToolCall] = []
    refusals: list[RlfError] = []
    for variant in range(NUM_VARIANTS):
        call = example_call(tool, variant)
        if call in seen:
            continue
        try:
            text = chat.write_calls([call])
        except RlfError as error:
            refusals.append(error)
            continue
        seen.append(call)
        yield Sample(text, tool.name, tuple(dict.fromkeys(_list_texts(call))), chat.thinking_marks), call
    if not seen:
        raise refusals[0]


def _choose_operators(can_wrap: bool, part: tuple[int, int]) -> tuple[tuple[Operator, ...], ...]:
    usable = [operator for operator in OPERATORS if can_wrap or not operator.thinks]
    pairs = [pair for pair in combinations(usable, 2) if not all(operator.thinks for operator in pair)]
    return (*((operator,) for operator in usable), *pairs[part[0] :: part[1]])


def _read_calls(read: Reader, text: str) -> tuple[ToolCall, ...] | None:
    try:
        parsed = read(text, False)
    except Exception:  # noqa: BLE001 - any way to fail is what is counted
        return None
    return None if parsed.failures else parsed.calls


def _judge_mutant(
    chat: ChatFormat | None,
    read: Reader,
    accepts: Accepts,
    text: str,
    whole: str,
    call: ToolCall,
    cut: bool,
    allowed: bool,
) -> tuple[Outcome, str]:
    try:
        parsed = read(text, cut)
        fixed, _ = repaired(chat, text, parsed, truncated=cut) if chat and parsed.failures else (parsed, ())
    except Exception as error:  # noqa: BLE001 - any way to fail is what is counted
        return Outcome.CRASH, f"{type(error).__name__}: {error}"
    wrong = [found for found in fixed.calls if not allowed or found != call]
    if wrong and allowed and not any(accepts(found) for found in wrong):
        return Outcome.REFUSED, ""
    if wrong:
        altered = allowed and all(_is_altered(found, call, whole) for found in wrong)
        return (Outcome.ALTERED, "") if altered else (Outcome.FALSE_EXECUTION, str(wrong[0]))
    if parsed.calls:
        return Outcome.RECALLED, ""
    if fixed.calls:
        return Outcome.REPAIRED, ""
    if parsed.failures:
        return Outcome.TYPED, ""
    return (
        (Outcome.SILENT_LOSS, repr(parsed.answer)) if allowed and _is_visible(text, whole, call) else (Outcome.GONE, "")
    )


def _is_altered(found: ToolCall, meant: ToolCall, whole: str) -> bool:
    """Whether a call differs from the one that was meant by more text in what the format writes bare alone."""
    bare = [value for value in meant.arguments.values() if isinstance(value, str) and value in whole]
    if found.name != meant.name or len(found.arguments) != len(meant.arguments) or not bare:
        return False
    # The order of arguments means nothing; a name that was altered too stands where the meant one is missing.
    same = [(key, key) for key in meant.arguments if key in found.arguments]
    others = [key for key in found.arguments if key not in meant.arguments]
    missing = [key for key in meant.arguments if key not in found.arguments]
    pairs = [*same, *zip(others, missing, strict=True)]
    return all(
        key in other and _to_text(meant.arguments[key]) in _to_text(found.arguments[other]) for other, key in pairs
    )


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_visible(text: str, whole: str, call: ToolCall) -> bool:
    """Whether a reader would still see a call: its name with an argument's text, or what opens one in the format."""
    if call.name in whole and call.name in text and any(shown in text for shown in _list_texts(call)):
        return True
    opening = whole[: whole.find(call.name)].strip() if call.name in whole else whole.split("\n")[0]
    return bool(opening) and opening in text


def _list_texts(call: ToolCall) -> Iterator[str]:
    """The arguments' texts as they may be written."""
    queue: list[Any] = [dict(call.arguments)]
    while queue:
        match queue.pop():
            case dict() as table:
                queue += table.values()
            case list() as items:
                queue += items
            case str() as text if text:
                yield from {text, json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
                yield repr(text + '"')[1:-2]  # as Python writes it in single quotes
