"""What a call brings to light: which results are evidence that the trajectory found something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlf.core.folding import fold
from rlf.rewards.answers import holds
from rlf.rewards.normalization import Normalization, normalize
from rlf.types import CallRecord, Outcome


def shows(record: CallRecord, piece: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether a call shows a piece of evidence: its result holds the words, and the call did not hold them itself."""
    return finding(record) is not None and holds(record.result.text, piece, by) and not names(record, piece)


def finding(record: CallRecord) -> str | None:
    """The text of a result; None where the call failed, since an error text is no evidence."""
    return record.result.text if record.result.outcome is Outcome.OK else None


def names(record: CallRecord, piece: str) -> bool:
    """Whether the arguments of a call hold a piece as whole words: a tool that repeats them finds nothing.

    Punctuation between the words does not count, so that a piece in a query or in code is seen.
    """
    words = normalize(piece).split() or [fold(piece).strip().casefold()]
    pattern = r"\W+".join(map(re.escape, words))
    pattern = (r"(?<!\w)" if words[0][:1].isalnum() else "") + pattern + (r"(?!\w)" if words[-1][-1:].isalnum() else "")
    return bool(piece.strip()) and re.search(pattern, fold(argument_text(record)).casefold()) is not None


def argument_text(record: CallRecord) -> str:
    """Every text and number of the arguments, a line each."""
    return "\n".join(_leaves(record.call.arguments))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield str(key)
            yield from _leaves(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _leaves(child)
    elif value is not None:
        yield str(value)
