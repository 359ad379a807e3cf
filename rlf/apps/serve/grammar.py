"""Answers that follow a JSON schema: which tokens may come next, by llguidance, which is installed by choice."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rlf.core.errors import RlfError

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
