"""The tokens of a trajectory as pieces of its text: joined, they are what the tokenizer makes of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rlf.api.runs.openings import Openings
from rlf.types.trajectory import Trajectory

_WINDOW = 16
"""Tokens before a piece that are decoded with it: more than one character ever takes."""
_BROKEN = "\ufffd"


def token_texts(openings: Openings, trajectory: Trajectory) -> list[str]:
    """One text per token; empty for all of them where the tokenizer is not on this machine.

    A character that several tokens make stands with the last of them.
    """
    decode = openings.plain_decoder
    if decode is None:
        return [""] * len(trajectory.tokens)
    return openings.redactor.pieces(list(_split_pieces(trajectory.tokens, decode)))


def _split_pieces(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[str]:
    start, given = 0, ""
    for end in range(1, len(tokens) + 1):
        text = decode(tokens[start:end])
        if text.endswith(_BROKEN) and end < len(tokens) and end - start < _WINDOW:
            yield ""
            continue
        yield text[len(given) :]
        start, given = _next_window(tokens, start, end, text, decode)


def _next_window(
    tokens: Sequence[int], start: int, end: int, text: str, decode: Callable[[Sequence[int]], str]
) -> tuple[int, str]:
    """Where decoding continues, and what was returned already: windows keep a decode short."""
    if end - start < _WINDOW:
        return start, text
    return end - 1, decode(tokens[end - 1 : end])
