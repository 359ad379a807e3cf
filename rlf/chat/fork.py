"""A conversation as templates show it that drop earlier thinking: the same tokens without those of the thinking.

No token is new. What a template would write in another way cannot be shown so; the certificate tells the two apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rlf.chat.format import ChatFormat


def without_thinking(
    chat: ChatFormat, prompt: Sequence[int], turns: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[int]:
    """The context of the turn that follows `turns`.

    Args:
        prompt: the tokens before the first turn.
        turns: what was sampled, and the observation after it, of each turn.
    """
    context, before = [], list(prompt)
    for sampled, observation in turns:
        thought = _end_of_thinking(chat, chat.decode(before), chat.decode(sampled))
        if thought:
            before = before[: _tokens_up_to(chat, before, _thinking_start(chat, chat.decode(before)))]
        context += before
        context += sampled[_tokens_up_to(chat, sampled, thought) :]
        before = list(observation)
    return context + before


def _thinking_start(chat: ChatFormat, text: str) -> int:
    """Where the thinking begins that a text before a turn opens; the text's end when it opens none."""
    mark = chat.thinking_marks[0].strip()
    bare = text.rstrip()
    return len(bare) - len(mark) if bare.endswith(mark) else len(text)


def _end_of_thinking(chat: ChatFormat, before: str, text: str) -> int:
    """Characters of a turn's text that are thinking, with the white space after it; 0 where it ends none."""
    opening, closing = (mark.strip() for mark in chat.thinking_marks)
    begun = _thinking_start(chat, before) < len(before)
    end = text.find(closing)
    if end < 0 or not (begun or text.lstrip().startswith(opening)):
        return 0
    end += len(closing)
    return end + len(text[end:]) - len(text[end:].lstrip())


def _tokens_up_to(chat: ChatFormat, tokens: Sequence[int], position: int) -> int:
    """The most tokens whose text ends at or before a character."""
    if position <= 0:
        return 0
    return bisect_right(range(len(tokens) + 1), position, key=lambda n: len(chat.decode(tokens[:n]))) - 1
