"""The words of a turn while it is being sampled, and when it is over.

Both are read by the model's chat format. What is shown of an unfinished turn is what it would say if it ended there, as
far as nothing that follows can turn it into something else; so the pieces add up to what the finished turn says.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlf.chat import ChatFormat
from rlf.chat.marks import ParsedTurn
from rlf.endpoints.openai import RequestedCall
from rlf.types import FailureClass

_UNSETTLED = re.compile(r"\S*[<\[{`|⟨【＜\ufffd]\S*\Z|\s+\Z")
"""The end of a text that may become a mark, or is a character that is not whole yet."""
_OPEN_TAG = re.compile(r"</?\w[^<>\n]{0,40}\Z")
"""A tag that is not whole yet: the attribute that makes a mark of it may follow."""
_OBJECT = re.compile(r"^[ \t]*[\[{]\s*[\[{\"']", re.MULTILINE)
"""The beginning of a possible call that is a bare object."""
_LOOK_BACK = 200
"""Characters before the end of what was shown in which a call may begin."""
_SIGN = re.compile(r"[<\[{`|⟨【＜]|action", re.IGNORECASE)
"""Characters that every mark has: of calls, of thinking, of answers, in whatever syntax."""


def random_ids(number: int) -> list[str]:
    """Ids for calls, in order: nine letters and digits, which every family's template takes."""
    return sorted(secrets.token_hex(5)[:9] for _ in range(number))


@lru_cache(maxsize=256)
def parse_turn(chat: ChatFormat, text: str, truncated: bool) -> ParsedTurn:
    """A whole turn as its format reads it: once for what is kept of it, and for what is answered."""
    return chat.parse(text, truncated=truncated)


@lru_cache(maxsize=256)
def decode_turn(chat: ChatFormat, tokens: tuple[int, ...]) -> str:
    """The text of a whole turn, as `parse_turn`."""
    return chat.decode(tokens)


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a turn that was not shown yet."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[RequestedCall, ...] = ()


class TurnReader:
    """Reads one turn as it grows."""

    def __init__(
        self,
        chat: ChatFormat | None,
        *,
        calls: bool,
        opening: str = "",
        name: str | None = None,
        stops: Sequence[str] = (),
        make_ids: Callable[[int], Sequence[str]] = random_ids,
    ) -> None:
        """Takes what reads the turn.

        Args:
            chat: as it reads the turn that follows the prompt; None: a turn is plain text.
            calls: whether the turn may call.
            opening: text that stands at the beginning of the turn and was not sampled.
            name: the tool that the opening calls.
            stops: strings that end the turn before them.
            make_ids: gives ids for so many calls.
        """
        self._chat = chat
        self._calls = calls
        self._opening = opening
        self._name = name
        self._stops = stops
        self._make_ids = make_ids
        self._answer_text = self._thought = ""
        """The parts that were shown."""
        self._reads_text: bool | None = None
        """Whether the turn is plain text so far; None: it was not looked at yet."""
        self._is_held = False
        """Whether something looks like a call: the rest is shown when the turn is over."""
        self._names: list[str] = []
        self._num_read = 0

    @property
    def text(self) -> str:
        """The text that was shown so far, without thinking."""
        return self._answer_text

    def advance(self, sampled: str) -> Piece:
        """Reads an unfinished turn."""
        text = self._settled_text(self._opening + cut_at_stop(sampled, self._stops))
        if self._chat is None or self._is_plain(text):
            return self._grow_piece(text.strip() if self._chat else text, "")
        if self._is_held or self._chat.by_name:
            return Piece()
        start = max(0, len(self._answer_text) - _LOOK_BACK)  # a call that begins in what was shown long ago was no call
        place = self._chat.find_call(text, start)
        found = _OBJECT.search(text, start) if self._calls else None
        if found is not None:
            place = min(found.start(), len(text) if place is None else place)
        self._is_held = place is not None
        parsed = self._chat.parse(text[:place], truncated=False)
        return self._grow_piece(parsed.answer or "", parsed.thinking)

    def finish(self, sampled: str, *, truncated: bool) -> tuple[Piece, ParsedTurn | None]:
        """The rest of what a turn says, and how it was parsed; None where its format is not known."""
        text = self._opening + cut_at_stop(sampled, self._stops)
        if self._chat is None:
            return self._grow_piece(text, ""), None
        parsed = parse_turn(self._chat, text, truncated)
        if parsed.calls and self._calls:
            head = text[: self._chat.find_call(text)]
            before = self._chat.parse(head, truncated=False).answer if head.strip() else ""
            piece = self._grow_piece(before or "", parsed.thinking)
            ids = self._make_ids(len(parsed.calls))
            calls = [RequestedCall(i, c.name, json.dumps(c.arguments)) for i, c in zip(ids, parsed.calls, strict=True)]
            return Piece(piece.text, piece.reasoning, tuple(calls)), parsed
        if self._name is not None:  # the call that was demanded: its arguments are for the client to check
            written = self._without_end(text[len(self._opening) :])
            return Piece("", "", (RequestedCall(self._make_ids(1)[0], self._name, written),)), parsed
        # What was cut off is shown as far as it goes.
        whole = self._chat.parse(text, truncated=False) if truncated else parsed
        if whole.answer is not None:
            return self._grow_piece(whole.answer, whole.thinking), parsed
        only_thought = any(failure.kind is FailureClass.UNCLOSED_THINKING for failure in whole.failures)
        return self._grow_piece("" if only_thought else self._without_end(text), whole.thinking), parsed

    def stop_of(self, sampled: str) -> str | None:
        """The stop string that ended the turn; None where none did."""
        return min((stop for stop in self._stops if stop in sampled), key=sampled.find, default=None)

    def _grow_piece(self, text: str, reasoning: str) -> Piece:
        """The new part; text that was shown otherwise stays as it was shown."""
        answer = text[len(self._answer_text) :] if text.startswith(self._answer_text) else ""
        thought = reasoning[len(self._thought) :] if reasoning.startswith(self._thought) else ""
        self._answer_text += answer
        self._thought += thought
        return Piece(answer, thought)

    def _is_plain(self, text: str) -> bool:
        """Whether a text surely says itself: nothing in it that any format reads as more."""
        if self._reads_text is None:
            assert self._chat is not None, "what has no format is plain"
            self._reads_text = not self._opening and self._chat.parse("a", truncated=False).answer == "a"
            self._names = [tool.name for tool in self._chat.tools]
        new = text[max(0, self._num_read - 80) :]
        if self._reads_text and (_SIGN.search(new) or any(name in new for name in self._names)):
            self._reads_text = False
        self._num_read = len(text)
        return self._reads_text

    def _settled_text(self, text: str) -> str:
        """A text without its end, as far as that may become something else."""
        text = text[: len(text) - max((_measure_overlap(text, stop) for stop in self._stops), default=0)]
        opened = text.rfind("<")
        text = text[:opened] if opened >= 0 and _OPEN_TAG.match(text, opened) else text
        found = _UNSETTLED.search(text, max(text.rfind(" "), text.rfind("\n"), 0))
        return text if found is None else text[: found.start()]

    def _without_end(self, text: str) -> str:
        assert self._chat is not None, "plain text has no end"
        for stop in map(self._chat.decode, ([token] for token in self._chat.stop_token_ids)):
            text = text.removesuffix(stop)
        return text


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """A text up to the first stop string."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


def calls_of(calls: Sequence[RequestedCall]) -> list[dict[str, Any]]:
    """Calls as an OpenAI message has them."""
    return [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]


def write_message(text: str, calls: Sequence[RequestedCall], reasoning: str) -> dict[str, Any]:
    """A turn as an OpenAI message."""
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls_of(calls)
    if reasoning:
        message["reasoning_content"] = reasoning
    return message


def _measure_overlap(text: str, stop: str) -> int:
    """How much of a text's end a stop string may begin with."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
