"""Outcomes of a parser on mutated calls, counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations, product
from random import Random
from typing import Any

from rlf.chat.examples import NUM_VARIANTS, example_call
from rlf.chat.format import ChatFormat
from rlf.chat.fuzz.operators import OPERATORS, Operator, Sample
from rlf.chat.parsed import Parsed
from rlf.chat.repair import repaired
from rlf.core import RlfError, derive_seed
from rlf.types import ToolCall, ToolDescription


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

Reader = Callable[[str, bool], Parsed]
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
) -> Tally:
    """Tries every operator, then every pair of them, on canonical calls of a tool.

    Args:
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
    for operators, (sample, call) in product(_choose_operators(can_wrap), samples):
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


def _choose_operators(can_wrap: bool) -> tuple[tuple[Operator, ...], ...]:
    usable = [operator for operator in OPERATORS if can_wrap or not operator.thinks]
    pairs = (pair for pair in combinations(usable, 2) if not all(operator.thinks for operator in pair))
    return (*((operator,) for operator in usable), *pairs)


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
