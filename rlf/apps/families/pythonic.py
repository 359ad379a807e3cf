"""Pythonic calls: a list of Python calls, `[f(a=1), g(b="x")]`, as Llama 4, Llama 3.2, ToolACE and LFM2 write them.

How a turn is read:
- A list of calls begins a line, or stands between the tokens of Llama 4 (`<|python_start|>`) or LFM2
  (`<|tool_call_start|>`); it ends where its brackets close, so a bracket or tag inside a string ends nothing. The
  closing token may be missing at the end of a turn. Between tokens a string may hold line breaks as they are.
- Arguments are named literals; `true`, `false` and `null` are taken as JSON has them. Nothing is evaluated.
- One call of a list may fail beside others that run. A list that is not valid Python runs none of its calls.
- Thinking, prose, and what looks like a call are read as in every format with tags; see `rlf.chat.scan`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.apps.families.call_python import FORM, escape_breaks, list_end, read_call_list, write_list
from rlf.chat.calls import CallFault
from rlf.chat.format import ChatFormat, template_of
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.types import FailureClass, ToolCall

_MARKS = {"<|python_start|>": "<|python_end|>", "<|tool_call_start|>": "<|tool_call_end|>"}
_CALLS = r"\[\s*[A-Za-z_][\w.]*\s*\("
_BARE = r"^[ \t]*[A-Za-z_][\w.]*\((?:\s*\w+\s*=(?!=)[^\n]*)?\)[ \t]*$"
"""A line that is one call without its brackets."""
_OPEN = r"<\|(?:python|tool_call)_start\|>"
_CLOSE = r"<\|(?:python|tool_call)_end\|>"
_GRAMMAR = Grammar(
    tag=re.compile(rf"({_OPEN}|{_CLOSE}|</?think>|(?:^|(?<=</think>))[ \t]*(?={_CALLS}))\s*", re.MULTILINE),
    rehearsal=re.compile(rf"(?:{_OPEN}|{_CALLS}).*", re.DOTALL),
    messages=messages(
        f"Write {FORM} on a line of its own.",
        unterminated=f"The call was not run: its list is not closed. Write {FORM}.",
        stray_tag=f"This token closes nothing. Write {FORM} before it.",
    ),
)


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ()
    grammar = _GRAMMAR

    def read(self, tag: re.Match[str]) -> int:
        start, body, mark = tag.start(), tag.end(), tag[1]
        closing = _MARKS.get(mark, "")
        if mark in _MARKS.values():
            return self.fail_stray(tag)
        end = list_end(self.text, body, raw_breaks=bool(closing))
        if end is None:
            return self.cut(FailureClass.UNTERMINATED, start)
        if closing:
            return self._read_marked(start, body, end, closing)
        self._read_list(start, body, end)
        return end

    def _read_marked(self, start: int, body: int, end: int, closing: str) -> int:
        """Reads a list that a token opened and `closing` must end."""
        after = self.text.find(closing, end)
        # Llama 4 leaves the mark out at the end of a turn, where nothing can be meant between it and the list.
        if after < 0 and not self.truncated and not self.text[end:].strip():
            self._read_list(start, body, end)
            return len(self.text)
        if after < 0:
            return self.cut(FailureClass.UNTERMINATED, start)
        if self.text[end:after].strip():
            self.fail(FailureClass.BAD_CALL, start, after, f"There is text between the list and {closing}.")
        else:
            self._read_list(start, body, end)
        return after + len(closing)

    def _read_list(self, start: int, body: int, end: int) -> None:
        calls = read_call_list(escape_breaks(self.text[body:end]))
        for call in [calls] if isinstance(calls, CallFault) else calls:
            self.take(call, start, end)


class PythonicFormat(ChatFormat):
    """The format of Llama 4, Llama 3.2, ToolACE and LFM2."""

    scan = _Scan
    vllm_parser = "pythonic"
    models = "a Llama 4, Llama 3.2, ToolACE or LFM2 model"
    call_marks = Marks.of(r"<[\s|/]{0,2}python_start\|>", "<")
    near_marks = Marks.of(rf"<\|python_|{_CALLS}|{_BARE}", "<|", "(")
    by_name = True

    def _bind_tokenizer(self) -> None:
        super()._bind_tokenizer()
        template = template_of(self.tokenizer)
        self._marks = next((marks for marks in _MARKS.items() if marks[0] in template), ("", ""))
        self.call_ends = (self._marks[1] or ")]",)

    def _end_tokens(self) -> Sequence[str]:
        return [*super()._end_tokens(), "<|eom|>", "<|eom_id|>"]

    @classmethod
    def matches(cls, chat_template: str) -> str | None:
        """Templates that write LFM2's `<|tool_call_start|>[` or Llama 4's `<|python_start|>`; others by name only."""
        if '"<|tool_call_start|>["' in chat_template or "<|python_start|>" in chat_template:
            return "its chat template writes calls as a Python list"
        return None

    def write_call(self, call: ToolCall) -> str:
        """A list of one call; raises RlfError for names that are no Python names."""
        text = self.write_calls([call])
        return self._check_written(call, text)

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        """One list of all calls."""
        return f"{self._marks[0]}{write_list(calls)}{self._marks[1]}"
