"""Answers and calls that follow a JSON schema: which tokens may come next, by llguidance, installed by choice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rlf.chat import ChatFormat
from rlf.core.errors import RlfError
from rlf.types.tool import ToolCall, ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_WRITTEN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write each value: where spaces are free, a weak model writes nothing else."""


class SchemaForm:
    """The form of an answer: called, it gives the state before the first token of a turn."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, schema: str, ends: tuple[int, ...]) -> None:
        """Reads a schema. Slow at first: a large vocabulary takes a second.

        Args:
            schema: JSON text.
            ends: tokens that end a turn.

        Raises:
            RlfError: it cannot be followed.
        """
        self._ends = list(ends)
        tables = _read_vocabulary(tokenizer, ends)
        from llguidance import LLMatcher

        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, defaults=_WRITTEN)
            self._matcher = LLMatcher(tables, grammar, log_level=0)
        except ValueError as fault:  # nested too deep, or half of a character
            raise RlfError(f"the schema cannot be read: {fault}") from fault
        if self._matcher.is_error():
            # The first line names the part of the schema that is at fault; the others show the grammar around it.
            raise RlfError(self._matcher.get_error().strip().splitlines()[0])

    def __call__(self) -> SchemaState:
        return SchemaState(self._matcher.deep_copy(), self._ends)


class SchemaState:
    """Where a turn stands: a `TurnState`."""

    def __init__(self, matcher: Any, ends: list[int]) -> None:
        self._matcher = matcher
        self._ends = ends

    def allowed(self, size: int) -> np.ndarray:
        """Which tokens may come next, of so many; those that end a turn where the text is whole."""
        allowed_V = np.zeros(size, dtype=bool)
        if not self._matcher.is_stopped():
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            found = np.unpackbits(bits, bitorder="little")[:size]
            allowed_V[: len(found)] = found
        if not allowed_V.any():  # stopped, also by an error, e.g. over a limit of the library: the turn ends as it is
            allowed_V[self._ends] = True
        return allowed_V

    def take(self, token: int) -> None:
        """Takes the token that was drawn."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)

    @property
    def is_over(self) -> bool:
        """Whether nothing more may come."""
        return bool(self._matcher.is_stopped())


class CallsForm:
    """The form of a turn that may call: once a call is opened by its mark, its tool and its arguments follow."""

    def __init__(
        self,
        chat: ChatFormat,
        tools: Sequence[ToolDescription],
        strict: frozenset[str],
        ends: tuple[int, ...],
        begun: Sequence[int] = (),
    ) -> None:
        """Reads schemas.

        Args:
            strict: tools whose arguments fit their schemas; those of others are any object.
            ends: tokens that end a turn.
            begun: tokens of the turn that are there already.

        Raises:
            RlfError: a schema cannot be followed, or the format opens its calls by no token of their own.
        """
        self._ends, self._begun = list(ends), begun
        tables = _read_vocabulary(chat.tokenizer, ends)
        rules = list[str]()
        for at, tool in enumerate(tools):
            self._marks, opening, closing = _read_frame(chat, tool.name)
            schema = dict(tool.input_schema) if tool.name in strict else {"type": "object"}
            written = json.dumps({"x-guidance": _WRITTEN, **schema})
            rules.append(f"c{at}: {json.dumps(opening)} a{at} {json.dumps(closing)}\na{at}: %json {written}")
        start = "start: " + " | ".join(f"c{at}" for at in range(len(rules)))
        self._matcher = _compile_calls(tables, "\n".join([start, *rules]))

    def __call__(self) -> CallsState:
        state = CallsState(self._matcher, self._marks, self._ends)
        for token in self._begun:
            state.take(token)
        return state


class CallsState:
    """Where a turn with calls stands: a `TurnState`."""

    def __init__(self, matcher: Any, marks: tuple[int, int | None], ends: list[int]) -> None:
        self._matcher, self._ends = matcher, ends
        self._opening, self._closing = marks
        self._call: SchemaState | None = None

    def allowed(self, size: int) -> np.ndarray:
        """Which tokens may come next, of so many: all outside of a call."""
        if self._call is None:
            return np.ones(size, dtype=bool)
        return np.arange(size) == self._closing if self._call.is_over else self._call.allowed(size)

    def take(self, token: int) -> None:
        """Takes the token that was drawn."""
        if self._call is None:
            self._call = SchemaState(self._matcher.deep_copy(), self._ends) if token == self._opening else None
            return
        was_over = self._call.is_over
        self._call.take(token)
        if was_over or (self._call.is_over and self._closing is None):
            self._call = None


@lru_cache(maxsize=64)
def _compile_calls(tables: Any, lark: str) -> Any:
    from llguidance import LLMatcher

    matcher = LLMatcher(tables, LLMatcher.grammar_from_lark(lark), log_level=0)
    if matcher.is_error():
        raise RlfError(matcher.get_error().strip().splitlines()[0])
    return matcher


def _read_frame(chat: ChatFormat, name: str) -> tuple[tuple[int, int | None], str, str]:
    """The tokens that open and close a call of a tool, and its text before and after the arguments. Raises RlfError."""
    probe = {"x": "rlf"}
    opening, found, closing = chat.write_call(ToolCall(name, probe)).partition(json.dumps(probe))
    added = {token.content: id_ for id_, token in chat.tokenizer.added_tokens_decoder.items()}
    mark = next((text for text in added if opening.startswith(text)), None)
    if mark is None or not found:
        raise RlfError("the model's chat format opens its calls by no token of their own, or writes no JSON in them")
    end = min((text for text in added if text in closing), key=closing.index, default=None)
    marks = added[mark], None if end is None else added[end]
    return marks, opening.removeprefix(mark), closing if end is None else closing[: closing.index(end)]


@lru_cache(maxsize=4)
def _read_vocabulary(tokenizer: PreTrainedTokenizerBase, ends: tuple[int, ...]) -> Any:
    try:
        from llguidance.hf import from_tokenizer
    except ImportError as fault:
        raise RlfError("it needs llguidance, which is not installed: pip install 'rlf[grammar]'") from fault
    try:
        return from_tokenizer(tokenizer, eos_token=list(ends))
    except ValueError as fault:
        raise RlfError(f"llguidance cannot read the model's tokenizer: {fault}") from fault
