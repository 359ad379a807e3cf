"""One pass over one sampled turn, the part that formats share: thinking, failures, the answer, the end of the turn.

A format says what its marks are (`Grammar`) and reads what each of them begins (`Scan.read`). Here is kept that nothing
thought is run, that what looks like a call is no answer, and that a cut turn is no whole one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rlf.chat.call_json import CallFault
from rlf.chat.format import Parsed
from rlf.types import FailureClass, ParseFailure, ToolCall

THINK, END_THINK = "<think>", "</think>"

LOOKALIKE = re.compile(
    r"""<[\s|/]{0,2}(?:(?:tool|function)[-_ ]?calls?\b|(?:function|parameter)=|arg_(?:key|value)>|python_tag\|>)"""
    r"""|<[|｜]tool[▁_]|\[TOOL_CALLS\]"""
    r"""|\{\s*["']name["']\s*:\s*["'][^"'\n]*["']\s*,\s*["'](?:arguments|parameters)["']\s*:""",
    re.IGNORECASE,
)
"""A call's mark of any family, a misspelt one, or a bare call object: what no answer holds."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The marks of a format."""

    tag: re.Pattern[str]
    """Any mark, with the white space after it; group 1 is the mark itself. `<think>` and `</think>` are read here."""
    rehearsal: re.Pattern[str]
    """A call inside thinking, whole as far as it is."""
    lookalike: re.Pattern[str]
    """What looks like a call but is none; another family's, a misspelt one."""
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
    }
    return common | {FailureClass(name): words for name, words in other.items()}


class Scan(ABC):
    """What was found so far in a turn."""

    __slots__ = ("found", "kept", "prose", "text", "thoughts", "truncated")
    grammar: ClassVar[Grammar]

    def __init__(self, text: str, truncated: bool) -> None:
        self.text = text
        self.truncated = truncated
        self.found: list[tuple[int, ToolCall | ParseFailure]] = []
        """Items with their positions."""
        self.prose: list[tuple[int, int]] = []
        """Spans outside thinking and calls."""
        self.thoughts: list[str] = []
        self.kept = (0, 0, 0)
        """End of the last thinking, and how many items and spans came before it."""

    @abstractmethod
    def read(self, tag: re.Match[str]) -> int:
        """Reads what a mark other than those of thinking begins; returns where to go on, past its start."""

    def run(self, opens_thinking: bool) -> Parsed:
        """Reads the turn; `opens_thinking` tells that the generation prompt has opened thinking."""
        text, search = self.text, self.grammar.tag.search
        position = self._think(0, 0) if opens_thinking else 0
        while tag := search(text, position):
            self.prose.append((position, tag.start()))
            mark = tag[1]
            if mark == THINK:
                position = self._think(tag.start(), tag.end(1))
            elif mark == END_THINK:
                position = self._rewind(tag.start(), tag.end(1))
            else:
                position = self.read(tag)
        self.prose.append((position, len(text)))
        return self.finish()

    def fail(self, kind: FailureClass, start: int, end: int, message: str = "", *, structural: bool = False) -> None:
        """Records a failure of the text from `start` to `end`."""
        words = message or self.grammar.messages[kind]
        self.found.append((start, ParseFailure(kind, words, self.text[start:end], start, structural)))

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

    def said(self) -> str:
        """The final answer if the turn is one; empty when it says nothing."""
        return "".join([self.text[start:end] for start, end in self.prose]).strip()

    def thought(self, start: int, end: int) -> None:
        """Records thinking, and the call rehearsed in it."""
        self.thoughts.append(self.text[start:end].strip())
        call = self.grammar.rehearsal.search(self.text, start, end)
        if call is not None:
            self.fail(FailureClass.IN_THINKING, call.start(), call.end())

    def _think(self, start: int, inside: int) -> int:
        """Reads thinking from `inside`; `start` is where its tag begins."""
        end = self.text.find(END_THINK, inside)
        if end < 0:
            self.thought(inside, len(self.text))
            return self.cut(FailureClass.UNCLOSED_THINKING, start)
        self.thought(inside, end)
        return self._end_of_thinking(end + len(END_THINK))

    def _rewind(self, start: int, end: int) -> int:
        """A `</think>` that nothing opened: what was read since the last thinking was thought, not said."""
        begin, num_found, num_prose = self.kept
        del self.found[num_found:]
        del self.prose[num_prose:]
        self.thought(begin, start)
        return self._end_of_thinking(end)

    def _end_of_thinking(self, position: int) -> int:
        self.kept = (position, len(self.found), len(self.prose))
        return position

    def finish(self) -> Parsed:
        """What was found, in the order of the text, and the answer when nothing but a rehearsal was found."""
        self._find_lookalikes()
        answer = None
        rehearsed_only = all(isinstance(i, ParseFailure) and i.kind is FailureClass.IN_THINKING for _, i in self.found)
        tail, end = self.prose[-1]
        if self.truncated and (rehearsed_only or self.text[tail:end].strip()):
            self.cut(FailureClass.TRUNCATED, tail)
        elif rehearsed_only and (said := self.said()):
            answer = said
        elif not self.found:
            self.fail(FailureClass.EMPTY, 0, len(self.text), structural=True)
        self.found.sort(key=lambda placed: placed[0])
        return Parsed(tuple([item for _, item in self.found]), answer, "\n".join(filter(None, self.thoughts)))

    def _find_lookalikes(self) -> None:
        # What the budget cut is TRUNCATED, whatever it was to become.
        for start, end in self.prose[: -1 if self.truncated else None]:
            found = self.grammar.lookalike.search(self.text, start, end)
            if found:
                self.fail(FailureClass.BAD_CALL, found.start(), end)
