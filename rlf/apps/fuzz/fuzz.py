"""Mutated calls of tools, read by chat formats."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlf.apps.fuzz.report import WRONG, Accepts, Outcome, Reader, Tally, fuzz
from rlf.chat.examples import NUM_VARIANTS, example_call
from rlf.chat.format import FORMATS, ChatFormat
from rlf.chat.marks import FOREIGN, Parsed
from rlf.chat.repair import stand_in
from rlf.core import RlfError
from rlf.tools import ToolDeclaration
from rlf.tools.validate import ArgumentCheck
from rlf.types import FailureClass, ParseFailure, ToolCall, ToolDescription

__all__ = ["FORMATS", "WRONG", "ForeignTally", "Outcome", "Tally", "ToolFuzz", "fuzz_tools"]

# Calls in other models' syntaxes given to a format's parser: none of them may be taken for an answer.
#
# Each syntax is written with every variant of arguments, alone, after words, after thinking, and as the format marks an
# answer. Every other format here is such a syntax too, and so is every one of `rlf.chat.marks`.

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


# vLLM's tool parsers as readers, to compare with rlf's own. Only where vLLM is installed.


def vllm_reader(name: str, tokenizer: Any) -> Reader:
    """Reads turns with vLLM's parser of a name. Raises RlfError where vLLM or the parser is not there."""
    if importlib.util.find_spec("vllm") is None:
        raise RlfError(f"--parser vllm:{name}: vLLM is not installed here. Install it, or leave --parser out.")
    manager = _find_manager()
    try:
        parser = manager.get_tool_parser(name)(tokenizer)
        parser.extract_tool_calls("", _Request())
    except KeyError as error:
        raise RlfError(f"--parser vllm:{name}: vLLM has no such parser. Name one of vLLM's tool parsers.") from error
    except NotImplementedError as error:
        raise RlfError(
            f"--parser vllm:{name}: vLLM's parser of that name does not read text. Name another parser."
        ) from error

    def read(text: str, truncated: bool) -> Parsed:
        found = parser.extract_tool_calls(text, _Request())
        items: list[ToolCall | ParseFailure] = []
        for call in found.tool_calls:
            try:
                items.append(ToolCall(call.function.name, json.loads(call.function.arguments)))
            except ValueError:
                items.append(ParseFailure(FailureClass.BAD_ARGUMENTS, "no JSON", call.function.arguments, 0, False))
        return Parsed(tuple(items), None if items else str(found.content or ""), "")

    return read


class _Request:
    """The part of a request that vLLM's parsers read: whether there are tools."""

    tools: tuple[Any, ...] = ()
    tool_choice = "auto"
    skip_special_tokens = False


def _find_manager() -> Any:
    for place in ("vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers"):
        if importlib.util.find_spec(place) is not None:
            return importlib.import_module(place).ToolParserManager
    raise RlfError("--parser: this vLLM has no tool parsers that rlf knows. Use vLLM 0.10 or later.")


_VLLM = "vllm:"


@dataclass(frozen=True, slots=True)
class ToolFuzz:
    """How formats read mutated calls, and calls in the syntax of others."""

    tallies: list[Tally]
    foreign: list[ForeignTally]
    skipped: list[str]
    """What could not be tried: a format that cannot write a tool's calls says so itself."""


def fuzz_tools(
    tools: Sequence[ToolDeclaration], names: Sequence[str], parser: str, seed: int, seconds: float
) -> ToolFuzz:
    """Mutates calls of every tool, alone and in pairs, and lets every format read them."""
    found = ToolFuzz([], [], [])
    deadline, left = time.monotonic() + seconds, len(tools) * len(names)
    for name in names:
        for tool in tools:
            described = tool.description_for_model
            budget_s = max(0.0, deadline - time.monotonic()) / left
            left -= 1
            try:
                chat = stand_in(name, [described])
                reader = _make_reader(parser, chat.tokenizer) if parser else None
                accepts = _make_accepts(tool)
                tally = fuzz(chat, name, described, seed=seed, budget_s=budget_s, accepts=accepts, reader=reader)
                found.tallies.append(tally)
                found.foreign.extend(read_foreign(chat, name, described, accepts=accepts, reader=reader))
            except RlfError as error:
                if parser:
                    raise
                found.skipped.append(f"{name} {tool.name}: not tried: {error}")
    return found


def _make_accepts(tool: ToolDeclaration) -> Callable[[ToolCall], bool]:
    """Makes the executor's test of a call: the tool's name, and arguments that its schema allows."""
    check = ArgumentCheck(tool.input_schema)
    return lambda call: call.name == tool.name and check.complaint(dict(call.arguments)) is None


def _make_reader(parser: str, tokenizer: object) -> Reader:
    """vLLM's parser of a name. Raises RlfError where vLLM is not installed or has no such parser."""
    if not parser.startswith(_VLLM):
        raise RlfError(f"--parser: got {parser!r}; expected vllm:NAME. Write e.g. `--parser vllm:hermes`.")
    return vllm_reader(parser.removeprefix(_VLLM), tokenizer)
