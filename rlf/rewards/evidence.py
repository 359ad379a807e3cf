"""Evidence in the results of calls that the trajectory found something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from rlf.core.redact import fold
from rlf.rewards.answers import holds
from rlf.rewards.normalization import Normalization, normalize
from rlf.types import CallRecord, Outcome, Trajectory

_TOKEN = re.compile(r"[-+]?\d(?:[\d.,:/]*\d)?|[^\W\d_]+")


def shows(trajectory: Trajectory, record: CallRecord, piece: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether a call of a trajectory shows a piece of evidence: its result holds the words, which are no guess."""
    if finding(record) is None or not holds(record.result.text, piece, by):
        return False
    return not names(record, piece, by) and not _is_guessed(trajectory, record, piece, by)


def _is_guessed(trajectory: Trajectory, record: CallRecord, piece: str, by: Normalization) -> bool:
    """Whether an earlier call named a piece before the question or a result held it: tools read back what was noted."""
    if holds(" ".join(message.content for message in trajectory.task.messages), piece, by):
        return False
    for earlier in takewhile(lambda call: call is not record, trajectory.calls):
        if names(earlier, piece, by):
            return True
        if finding(earlier) is not None and holds(earlier.result.text, piece, by):
            return False
    return False


def finding(record: CallRecord) -> str | None:
    """The text of a result; None where the call failed, since an error text is no evidence."""
    return record.result.text if record.result.outcome is Outcome.OK else None


def names(record: CallRecord, piece: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether the arguments of a call hold a piece: a tool that repeats them finds nothing.

    Punctuation between its words does not count, so that a piece in a query or in code is seen; nor does the order of
    the words of a name, so that it cannot be put together from several arguments.
    """
    if not piece.strip():
        return False
    text = argument_text(record)
    tokens = _split_tokens(piece)
    if len(tokens) > 1 and any(map(str.isalpha, tokens)) and tokens <= _split_tokens(text):
        return True
    return holds(text, piece, by) or _has_words(fold(text).casefold(), piece)


def _has_words(text: str, piece: str) -> bool:
    words = normalize(piece).split() or [fold(piece).strip().casefold()]
    pattern = r"[\W_]+".join(map(re.escape, words))
    starts, ends = words[0][:1].isalnum(), words[-1][-1:].isalnum()
    return re.search((r"(?<![^\W_])" if starts else "") + pattern + (r"(?![^\W_])" if ends else ""), text) is not None


def _split_tokens(text: str) -> frozenset[str]:
    """The words and the numbers of a text, numbers with their signs and points."""
    return frozenset(_TOKEN.findall(fold(text).casefold()))


def argument_text(record: CallRecord) -> str:
    """Every text and number of the arguments, a line each."""
    return "\n".join(_iterate_leaf_texts(record.call.arguments))


def _iterate_leaf_texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield str(key)
            yield from _iterate_leaf_texts(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _iterate_leaf_texts(child)
    elif value is not None:
        yield str(value)
