"""Mutated calls of tools, read by chat formats."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlf.chat import FORMATS
from rlf.chat.fuzz.foreign import ForeignTally, read_foreign
from rlf.chat.fuzz.report import WRONG, Outcome, Reader, Tally, fuzz
from rlf.chat.fuzz.vllm import vllm_reader
from rlf.chat.standin import stand_in
from rlf.core.errors import RlfError
from rlf.tools import ToolDeclaration
from rlf.tools.validate import ArgumentCheck
from rlf.types import ToolCall

__all__ = ["FORMATS", "WRONG", "ForeignTally", "Outcome", "Tally", "ToolFuzz", "fuzz_tools"]

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
