"""Where the context of a turn begins, for a model that does not see all that was before.

A context leaves out the thinking of earlier turns, or, once it is full, old results of tools or all but the policy's
own summary. What was sampled stays as it is: a new context is a new row of the same trajectory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from rlf.chat.format import ChatFormat
from rlf.chat.history import ASKS, LEFT_OUT, SUMMARY
from rlf.chat.settings import WhenFull
from rlf.rollout.rollout import ChatPolicy, TokenRecord, with_observation
from rlf.types.task import Message
from rlf.types.tool import ToolDescription
from rlf.types.trajectory import ParseFailure, Turn

_Played = list[tuple[Sequence[int], Sequence[int]]]
"""What was sampled, and the observation after it, of each turn."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of one trajectory."""

    chat: ChatFormat
    handling: ChatPolicy
    messages: tuple[Message, ...]
    """The prompt's, which each context begins with."""
    tools: Sequence[ToolDescription]
    summaries: list[int] = field(default_factory=list)
    """Turns that are summaries, by their number; a prefix has none, for nothing is observed after one."""

    def next(self, turns: Sequence[Turn], record: TokenRecord) -> list[int] | None:
        """The tokens before the next turn, where they leave out some of those before the last; None: they do not."""
        full, forks = self.handling.context, self.handling.forks
        if not turns:
            return None
        is_after_summary = self.summaries[-1:] == [len(turns) - 1]
        context = self._after(turns, record, 0) if forks or is_after_summary else record.segment
        if full is not None and full.when_full is WhenFull.DROP_RESULTS and len(context) > full.limit:
            context = self._after(turns, record, len(turns) - full.keep_last)
        return None if context == record.segment else context

    def is_asked(self, turns: Sequence[Turn], record: TokenRecord) -> bool:
        """Whether what the last turn was answered ends with the request of a summary. A prefix's tokens say so too."""
        full = self.handling.context
        if not turns or full is None or full.when_full is not WhenFull.SUMMARIZE:
            return False
        seen = self.chat.decode(record.tokens[turns[-1].end : turns[-1].observation_end])
        # A result may hold the request's own words: they count only beyond those of the observation without a request.
        return ASKS in seen and seen.count(ASKS) > self.chat.decode(self._answered(turns[-1], record)).count(ASKS)

    def _after(self, turns: Sequence[Turn], record: TokenRecord, num_bare: int) -> list[int]:
        """The next turn's prompt, the first turns without their results.

        From the first prompt or the last summary on, not from the last segment: what an earlier fork left out is left
        out again.
        """
        tokens, (prompt, played) = record.tokens, self._beginning(turns, record)
        first = self.summaries[-1] + 1 if self.summaries else 0
        for number, turn in enumerate(turns[first:], first):
            seen = tokens[turn.end : turn.observation_end]
            if number < num_bare and turn.calls:
                seen = min(seen, self._answered(turn, record, repeat(LEFT_OUT)), key=len)
            played.append((tokens[turn.start : turn.end], seen))
        if self.handling.forks:
            return without_thinking(self.chat, prompt, played)
        return [*prompt, *chain.from_iterable(chain.from_iterable(played))]

    def _beginning(self, turns: Sequence[Turn], record: TokenRecord) -> tuple[list[int], _Played]:
        """The first prompt, or the one with the last summary, and the turns before that which stay beside it."""
        full, tokens = self.handling.context, record.tokens
        if full is None or not self.summaries:
            return tokens[: turns[0].start], []
        *before, turn = turns[: self.summaries[-1] + 1]
        said = self.handling.read(self.chat.after(tokens[: turn.start]), turn.text, truncated=False)[0].answer
        words = f"{SUMMARY} {turn.text if said is None else said}"
        kept = [turn for number, turn in enumerate(before) if number not in self.summaries]
        last = kept[len(kept) - full.keep_last if full.keep_last < len(kept) else 0 :]
        played: _Played = [(tokens[turn.start : turn.end], self._answered(turn, record)) for turn in last]
        return self.chat.prompt(with_observation(self.messages, words), self.tools), played

    def _answered(self, turn: Turn, record: TokenRecord, results: Iterable[str] | None = None) -> list[int]:
        """An observation without a request, with other results if given; corrections and a world's words stay."""
        chat = self.chat.after(record.tokens[: turn.start])
        closed = record.tokens[turn.end - 1] in chat.stop_token_ids
        if turn.world is not None and turn.world.reply is not None:
            return chat.user_turn(turn.world.reply, closed=closed, turn=turn.text)
        given = (call.result.text for call in turn.calls) if results is None else iter(results)
        observed = self.handling.read(chat, turn.text, truncated=False)[0].observed
        texts = [item.message if isinstance(item, ParseFailure) else next(given) for item in observed]
        return chat.observation(texts, closed=closed, turn=turn.text)


# A conversation as templates show it that drop earlier thinking: the same tokens without those of the thinking.
#
# No token is new. What a template would write in another way cannot be shown so; the certificate distinguishes the two.


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
