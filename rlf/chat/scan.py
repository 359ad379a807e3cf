"""One pass over one sampled turn, the part that formats share: thinking, failures, the answer, the end of the turn.

A format says what its marks are (`Grammar`) and reads what each of them begins (`Scan.read`). Here is kept that nothing
thought is run, that what looks like a call is no answer, and that a cut turn is no whole one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rlf.chat.calls import CallFault
from rlf.chat.marks import MENTION, Lookalikes, ParsedTurn
from rlf.core.readings import Readings
from rlf.types import FailureClass, ParseFailure, ToolCall, ToolDescription

# Where a call that cannot be read ends, judged by its brackets and quotes, so that no tag in its strings ends it.


def bracket_pattern(marks: str) -> re.Pattern[str]:
    """Brackets, whole strings and the marks of a format; a mark between strings breaks the balance.

    Strings are atomic, so that scanning stays linear; a quote that never closes is the last alternative.
    """
    # `*+` gives nothing back: without it a string that never closes would be tried at each of its characters again. A
    # lone quote, the last alternative, then ends the balance in `balanced_end`.
    return re.compile(rf""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|{marks}|[{{}}\[\]"']""", re.DOTALL)


def balanced_end(text: str, start: int, brackets: re.Pattern[str], closing: re.Pattern[str]) -> int | None:
    """Where brackets opened at `start` close with `closing` next, reading quotes of both kinds; or None."""
    depth = 0
    for match in brackets.finditer(text, start):
        token = match.group()
        if token in ("{", "["):
            depth += 1
        elif token in ("}", "]"):
            depth -= 1
            # Below 0 it closes what stands before the call: whose bracket this is cannot be known.
            if depth <= 0:
                return match.end() if depth == 0 and closing.match(text, match.end()) else None
        elif len(token) == 1 or token[0] == "<":  # a quote without its other, or a mark outside every string
            return None
    return None


# Quotations that prose opens around a call: a code fence, a comment, a thinking tag that the spec does not name.
#
# A call in one of these is shown, not made.

_TAGS = "thinking|thoughts?|reasoning|reflection|scratchpad|inner_monologue"
# In this order: a fence that opens and closes on its line is none that stays open (first alternative, without a group);
# backticks open one only up to the end of their line, since `a ``` b` is prose; tildes only where a line begins. The
# look-behind keeps four backticks from being read as one and three.
_MARK = re.compile(
    r"(?<!`)`{3,}+[^`\n]+`{3,}+|(?P<fence>(?<!`)`{3,}+|^[ \t>]*~{3,})(?P<info>[^`\n]*)$"
    rf"|(?P<open><!--|<(?:{_TAGS})>)|(?P<close>-->|</(?:{_TAGS})>)",
    re.MULTILINE | re.IGNORECASE,
)
_COMMENT = re.compile(r"[ \t]*(?://|#|>)[ \t]*")
"""A line that is a comment or a quotation, up to the call."""
_CLOSING = {"<!--": "-->"}


class Quotes:
    """The quotations that are open after the prose read so far."""

    __slots__ = ("_fence", "_is_owed", "_last_line", "_tag")

    def __init__(self) -> None:
        self._fence = ""
        """The marks that opened a code fence; empty outside one."""
        self._tag = ""
        """The opening tag of a comment or of thinking; empty outside one."""
        self._last_line = ""
        self._is_owed = False
        """Whether a failed call has opened a fence, so that the next bare mark closes it and opens none."""

    def read(self, prose: str) -> None:
        """Takes the prose that follows: each piece once, in order."""
        self._last_line = prose[prose.rfind("\n") + 1 :]
        for mark in _MARK.finditer(prose):
            if mark["fence"]:
                self._read_fence(mark["fence"].lstrip(" \t>"), mark["info"].strip())
            elif mark["open"] and not self._tag:
                self._tag = mark["open"].lower()
            elif mark["close"] and mark["close"].lower() == _CLOSING.get(self._tag, f"</{self._tag[1:]}"):
                self._tag = ""

    def read_failed(self, text: str) -> None:
        """Takes a call that could not be read: the end of a fence in it may stand after it."""
        if sum(mark["fence"] is not None for mark in _MARK.finditer(text)) % 2:
            self._is_owed = not self._is_owed

    def place(self, text: str, start: int, end: int) -> str:
        """What a call from `start` to `end` stands in, in words; empty for a call that stands free."""
        if self._fence or (text[start - 1 : start] == "`" and text[end : end + 1] == "`"):
            return "code marks"
        if self._tag:
            return "a comment" if self._tag == "<!--" else self._tag
        return "a comment or quotation" if _COMMENT.fullmatch(self._last_line) else ""

    def _read_fence(self, marks: str, info: str) -> None:
        if not self._fence:
            self._fence = "" if self._is_owed and not info else marks
            self._is_owed = self._is_owed and bool(info)
        elif marks.startswith(self._fence) and not info:
            self._fence = ""


THINK, END_THINK = "<think>", "</think>"
MAX_BALANCED = 64
"""Broken calls of one turn whose brackets are balanced; a turn of more is noise."""


def opens_thinking(generation_prompt: str, think: tuple[str, str] = (THINK, END_THINK)) -> bool:
    """Whether the text that lets the assistant speak leaves thinking open."""
    return any(generation_prompt.rfind(a) > generation_prompt.rfind(b) for a, b in ((THINK, END_THINK), think))


@dataclass(frozen=True, slots=True)
class Grammar:
    """The marks of a format."""

    tag: re.Pattern[str]
    """Any mark, with the white space after it; group 1 is the mark itself. `<think>` and `</think>` are read here."""
    rehearsal: re.Pattern[str]
    """A call inside thinking, whole as far as it is."""
    messages: Mapping[FailureClass, str]
    """What the model reads of each failure; a fault in a call brings its own words."""


def messages(call: str, **other: str) -> Mapping[FailureClass, str]:
    """The words for every format; `call` says how a call is written, `other` adds words by the name of a class."""
    common = {
        FailureClass.IN_THINKING: f"A call inside {THINK} is not run. Write it after {END_THINK}.",
        FailureClass.UNCLOSED_THINKING: f"The thinking was not closed. Write {END_THINK}, then the call or the answer.",
        FailureClass.TRUNCATED: "The turn was cut at its token limit. Be shorter.",
        FailureClass.EMPTY: "The turn is empty. Call a tool or give the answer.",
        FailureClass.BAD_CALL: f"This looks like a call but was not run. {call}",
        FailureClass.WRONG_TAG: f"This looks like a call but was not run. {call}",
    }
    return common | {FailureClass(name): words for name, words in other.items()}


class ReadFormat(Protocol):
    """The format of a turn, as its scan needs it: a `ChatFormat`."""

    tools: tuple[ToolDescription, ...]
    think: tuple[str, str]
    begins_thinking: bool

    @property
    def lookalikes(self) -> Lookalikes:
        """As `ChatFormat` says."""

    @property
    def readings_by_tool(self) -> Mapping[str, Readings]:
        """As `ChatFormat` says."""


class Scan(ABC):
    """Calls and failures found so far in a turn."""

    __slots__ = (
        "answers",
        "chat",
        "found",
        "kept",
        "num_balanced",
        "prose",
        "quotes",
        "text",
        "think",
        "thoughts",
        "truncated",
    )
    grammar: ClassVar[Grammar]
    marks_answers: ClassVar[bool] = False
    """Whether the format marks the answer: then only what stands in `answers` is one, alone and once."""

    def __init__(self, text: str, truncated: bool, chat: ReadFormat) -> None:
        self.text = text
        self.truncated = truncated
        self.chat = chat
        self.found: list[tuple[int, ToolCall | ParseFailure]] = []
        """Items with their positions."""
        self.prose: list[tuple[int, int]] = []
        """Spans outside thinking and calls."""
        self.answers: list[tuple[int, int]] = []
        """Spans of marked answers."""
        self.thoughts: list[str] = []
        self.num_balanced = 0
        """Broken calls whose end was looked for by their brackets."""
        self.quotes = Quotes()
        """What the prose has opened around what follows."""
        self.think = chat.think
        """The tags of thinking that the spec names; `<think>` is always read."""
        self.kept = (0, 0, 0, 0)
        """End of the last thinking, and how many items, spans and answers came before it."""

    @abstractmethod
    def read(self, tag: re.Match[str]) -> int:
        """Reads what a mark other than those of thinking begins; returns the next position, past its start."""

    def run(self) -> ParsedTurn:
        """Reads the turn."""
        think = self.think
        position = self._read_thinking(0, 0, self._first_closing()) if self.chat.begins_thinking else 0
        tags = self.grammar.tag if think[0] == THINK else _Tags(self.text, self.grammar.tag, think)
        while tag := tags.search(self.text, position):
            self._add_prose(position, tag.start())
            mark = tag[1]
            # Order matters: a mark between backticks is prose, and thinking hides every other mark.
            # One character to each side: the backticks of a mention.
            if tag.start() > 0 and MENTION.match(self.text, tag.start() - 1, tag.end(1) + 1):
                self._add_prose(tag.start(), tag.end(1))
                position = tag.end(1)
            elif mark in (THINK, think[0]):
                position = self._read_thinking(tag.start(), tag.end(1), END_THINK if mark == THINK else think[1])
            elif mark in (END_THINK, think[1]):
                position = self._turn_into_thinking(tag.start(), tag.end(1))
            else:
                position = self._read_unquoted(tag)
        self.prose.append((position, len(self.text)))
        return self.finish()

    def _first_closing(self) -> str:
        """The tag that ends thinking opened before the turn: the first of those that may."""
        places = {self.text.find(closing): closing for closing in (self.think[1], END_THINK)}
        return places[min((place for place in places if place >= 0), default=max(places))]

    def _add_prose(self, start: int, end: int) -> None:
        self.prose.append((start, end))
        self.quotes.read(self.text[start:end])

    def _read_unquoted(self, tag: re.Match[str]) -> int:
        """Reads what a mark begins; calls of it that are quoted are not run."""
        num_found = len(self.found)
        end = self.read(tag)
        # A broken call may have swallowed the end of the fence that it stands in.
        if len(self.found) > num_found and isinstance(self.found[-1][1], ParseFailure):
            self.quotes.read_failed(self.text[tag.start() : end])
        place = self.quotes.place(self.text, tag.start(), end)
        if place:
            words = f"The call stands in {place} and was not run. To make a call, write it outside, by itself."
            for index in range(num_found, len(self.found)):
                start, item = self.found[index]
                if isinstance(item, ToolCall):
                    stop = self.found[index + 1][0] if index + 1 < len(self.found) else end
                    raw = self.text[start : max(start, stop)]
                    self.found[index] = (start, ParseFailure(FailureClass.BAD_CALL, words, raw, start, False))
        return end

    def fail(self, kind: FailureClass, start: int, end: int, message: str = "", *, structural: bool = False) -> None:
        """Records a failure of the text from `start` to `end`."""
        words = message or self.grammar.messages[kind].replace(THINK, self.think[0]).replace(END_THINK, self.think[1])
        self.found.append((start, ParseFailure(kind, words, self.text[start:end], start, structural)))

    def take(self, call: ToolCall | CallFault, start: int, end: int) -> int:
        """Records a call, or why the text from `start` to `end` is none; returns that end."""
        if isinstance(call, CallFault):
            self.fail(call.kind, start, end, call.message)
        else:
            self.found.append((start, call))
        return end

    def cut(self, kind: FailureClass, start: int) -> int:
        """Records what reaches the end of the turn without its closing mark; returns that end."""
        self.fail(FailureClass.TRUNCATED if self.truncated else kind, start, len(self.text), structural=True)
        return len(self.text)

    def fail_up_to(self, mark: re.Pattern[str], fault: CallFault, start: int, inside: int) -> int:
        """Records what no closing mark ends: from `start` to the next `mark` after `inside`, or the end of the turn."""
        found = mark.search(self.text, inside)
        end = len(self.text) if found is None else found.start()
        cut_short = self.truncated and found is None
        kind, words = (FailureClass.TRUNCATED, "") if cut_short else (fault.kind, fault.message)
        self.fail(kind, start, end, words, structural=found is None)
        return end

    def fail_stray(self, tag: re.Match[str]) -> int:
        """Records a mark that closes nothing; returns its end."""
        self.fail(FailureClass.STRAY_TAG, tag.start(), tag.end(1))
        return tag.end(1)

    def balanced_end(self, body: int, brackets: re.Pattern[str], closing: re.Pattern[str]) -> int | None:
        """As `rlf.chat.scan.balanced_end`, for so many calls of a turn that noise costs no quadratic time."""
        self.num_balanced += 1
        return balanced_end(self.text, body, brackets, closing) if self.num_balanced <= MAX_BALANCED else None

    def fail_block(
        self, start: int, search_from: int, fault: CallFault, closing: str, marks: re.Pattern[str] | None = None
    ) -> int:
        """Records a block that cannot be read: to its closing mark, or before one that shows it missing.

        Args:
            marks: what may show that, group 1 of a match; None: every mark of the grammar.
        """
        mark = (marks or self.grammar.tag).search(self.text, search_from)
        if mark is None:
            return self.cut(FailureClass.UNTERMINATED, start)
        if mark[1] == closing:
            return self.take(fault, start, mark.end(1))
        self.fail(FailureClass.UNTERMINATED, start, mark.start())
        return mark.start()

    def said(self) -> str:
        """The final answer if the turn is one; empty when it says nothing."""
        spans = self.answers if self.marks_answers else self.prose
        return "".join([self.text[start:end] for start, end in spans]).strip()

    def thought(self, start: int, end: int) -> None:
        """Records thinking, and the call rehearsed in it."""
        self.thoughts.append(self.text[start:end].strip())
        call = self.grammar.rehearsal.search(self.text, start, end)
        if call is not None:
            self.fail(FailureClass.IN_THINKING, call.start(), call.end())

    def _read_thinking(self, start: int, inside: int, closing: str) -> int:
        """Reads thinking from `inside` to its closing tag; `start` is where its opening tag begins."""
        end = self.text.find(closing, inside)
        if end < 0:
            self.thought(inside, len(self.text))
            return self.cut(FailureClass.UNCLOSED_THINKING, start)
        self.thought(inside, end)
        return self._end_of_thinking(end + len(closing))

    def _turn_into_thinking(self, start: int, end: int) -> int:
        """A `</think>` that nothing opened: the text since the last thinking block is thinking, not answer."""
        # Templates that open thinking in the prompt leave its opening tag out of the turn.
        begin, num_found, num_prose, num_answers = self.kept
        del self.found[num_found:]
        del self.prose[num_prose:]
        del self.answers[num_answers:]
        self.thought(begin, start)
        return self._end_of_thinking(end)

    def _end_of_thinking(self, position: int) -> int:
        self.kept = (position, len(self.found), len(self.prose), len(self.answers))
        self.quotes = Quotes()
        return position

    def finish(self) -> ParsedTurn:
        """Calls and failures in the order of the text, and the answer when nothing but a rehearsal was found."""
        if self.marks_answers:
            self._check_answers()
        self._find_lookalikes()
        answer = None
        thought = FailureClass.IN_THINKING
        rehearsed_only = not [item for _, item in self.found if isinstance(item, ToolCall) or item.kind is not thought]
        # Thinking that rehearsed a call does not spoil the answer after it: nothing was run, and nothing was lost.
        tail, end = self.prose[-1]
        # At the token limit the text after the last mark is no answer: more of it would have come.
        if self.truncated and (rehearsed_only or self.text[tail:end].strip()):
            self.cut(FailureClass.TRUNCATED, tail)
        elif rehearsed_only and (said := self.said()):
            answer = said
        elif not self.found:
            self.fail(FailureClass.EMPTY, 0, len(self.text), structural=True)
        if len(self.found) > 1:  # failures that `finish` adds come last, whatever their place
            self.found.sort(key=lambda placed: placed[0])
        return ParsedTurn(tuple([item for _, item in self.found]), answer, "\n".join(filter(None, self.thoughts)))

    def _check_answers(self) -> None:
        """A marked answer stands alone; what looks like a call is none in it either."""
        called = any(isinstance(item, ToolCall) for _, item in self.found)
        if len(self.answers) > 1 or (self.answers and called):
            self.fail(FailureClass.TWO_ANSWERS, self.answers[0][0], self.answers[-1][1])
        self.prose[:-1] += self.answers

    def _find_lookalikes(self) -> None:
        # What the budget cut is TRUNCATED, whatever it was to become.
        for start, end in _join_spans(self.prose[: -1 if self.truncated else None]):
            place = self.chat.lookalikes.first(self.text[start:end])  # cut out, so that `^` finds its beginning
            if place is not None:
                self.fail(FailureClass.WRONG_TAG, start + place, end)


class _Tags:
    """The marks of a turn in order, with the tags of thinking that the spec names among them."""

    def __init__(self, text: str, tag: re.Pattern[str], think: tuple[str, str]) -> None:
        self._tag, self._named = tag, re.compile(f"({'|'.join(map(re.escape, think))})")
        self._next = self._named.search(text)

    def search(self, text: str, position: int) -> re.Match[str] | None:
        """The first mark of that text at or after a position; positions only grow."""
        if self._next is not None and self._next.start() < position:
            self._next = self._named.search(text, position)
        tag = self._tag.search(text, position)
        if self._next is None or (tag is not None and tag.start() <= self._next.start()):
            return tag
        return self._next


def _join_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans with those that touch made one: what looks like a call may lie across them."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        elif start < end:
            joined.append((start, end))
    return joined
