"""Calls in other models' syntaxes given to a format's parser: none of them may be taken for an answer.

Each syntax is written with every variant of arguments, alone, after words, after thinking, and as the format marks an
answer. Every other format is such a syntax too, and so is every one of `rlf.chat.marks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rlf.chat.examples import NUM_VARIANTS, example_call
from rlf.chat.format import FORMATS, ChatFormat
from rlf.chat.marks import FOREIGN
from rlf.chat.repair import stand_in
from rlf.core import RlfError
from rlf.types import ToolCall, ToolDescription

from .mutants import WRONG, Accepts, Outcome, Reader

Writer = Callable[[ToolCall], str]


@dataclass(slots=True)
class ForeignTally:
    """One syntax as one format reads it, for one tool."""

    format: str
    tool: str
    syntax: str
    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    example: str = ""
    """The first turn with a wrong outcome; empty when there is none."""

    @property
    def is_clean(self) -> bool:
        """Whether no call was taken for an answer, run as another one, or broke the parser."""
        return not any(self.counts[outcome] for outcome in WRONG)


def read_foreign(
    chat: ChatFormat, name: str, tool: ToolDescription, *, accepts: Accepts, reader: Reader | None = None
) -> list[ForeignTally]:
    """One tally per syntax other than the format's own."""
    read: Reader = reader or (lambda text, cut: chat.parse(text, truncated=cut))
    tallies = []
    for syntax, write in foreign_writers(tool).items():
        if syntax == name:
            continue
        tally = ForeignTally(name, tool.name, syntax)
        for text, call in _write_turns(chat, tool, write):
            outcome = _judge_turn(read, accepts, text, call)
            tally.counts[outcome] += 1
            if outcome in WRONG and not tally.example:
                tally.example = text
        tallies.append(tally)
    return tallies


def foreign_writers(tool: ToolDescription) -> Mapping[str, Writer]:
    """Every syntax by name; formats whose calls look like ordinary text are none."""
    writers: dict[str, Writer] = {}
    for name in FORMATS.names():
        try:
            if FORMATS.get(name).call_marks:
                writers[name] = stand_in(name, [tool]).write_call
        except RlfError:
            continue  # a format that cannot call this tool, or one of a package without a stand-in
    return writers | {syntax.name: syntax.write for syntax in FOREIGN}


def _write_turns(chat: ChatFormat, tool: ToolDescription, write: Writer) -> Iterator[tuple[str, ToolCall]]:
    opening = chat.thinking_marks[1] if chat.begins_thinking else ""
    for variant in range(NUM_VARIANTS):
        call = example_call(tool, variant)
        try:
            text = write(call)
        except RlfError:
            continue  # arguments that the syntax cannot hold
        thought = chat.thinking_marks[1] if chat.begins_thinking else "".join(chat.thinking_marks)
        for turn in (text, f"I look it up.\n{text}", chat.write_answer(text)):
            yield opening + turn, call
        yield f"{thought}{text}", call


def _judge_turn(read: Reader, accepts: Accepts, text: str, call: ToolCall) -> Outcome:
    try:
        parsed = read(text, False)
    except Exception:  # noqa: BLE001 - any way to fail is what is counted
        return Outcome.CRASH
    wrong = [found for found in parsed.calls if found != call]
    if wrong:
        return Outcome.FALSE_EXECUTION if any(accepts(found) for found in wrong) else Outcome.REFUSED
    if parsed.calls:
        return Outcome.RECALLED
    return Outcome.TYPED if parsed.failures else Outcome.SILENT_LOSS
