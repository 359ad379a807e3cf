"""Olmo 3: Python calls between `<function_calls>` and `</function_calls>`, one a line, ChatML turns.

How a turn is read:
- A section ends at the first `</function_calls>` outside a string; each line in it is one call with named literals, and
  `true`, `false` and `null` are taken as JSON has them. Nothing is evaluated.
- One call of a section may fail beside others that run. A section that is not valid Python runs none of its calls.
- Thinking, prose, and what looks like a call are read as in every format with tags; see `rlf.chat.scan`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.apps.families.call_python import STRING, read_statements, write_call
from rlf.chat.calls import CallFault
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.types import FailureClass, ToolCall

_OPEN, _CLOSE = "<function_calls>", "</function_calls>"
_FORM = f'Write name(argument="value", other=1) on a line between {_OPEN} and {_CLOSE}.'
# A string is skipped whole, so that the tag inside it ends nothing.
_STRING_OR_CLOSE = re.compile(f"{STRING}|({_OPEN}|{_CLOSE}|</?think>)", re.DOTALL)
_STRING = re.compile(STRING, re.DOTALL)
_QUOTE = re.compile("[\"']")
_GRAMMAR = Grammar(
    tag=re.compile(r"(</?(?:function_calls|think)>)\s*"),
    rehearsal=re.compile(rf"{_OPEN}(?:.*?{_CLOSE}|.*)", re.DOTALL),
    messages=messages(
        _FORM,
        unterminated=f"The call was not run: {_CLOSE} is missing. {_FORM}",
        stray_tag=f"{_CLOSE} has no {_OPEN} before it. {_FORM}",
    ),
)


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ()
    grammar = _GRAMMAR

    def read(self, tag: re.Match[str]) -> int:
        if tag[1] == _CLOSE:
            return self.fail_stray(tag)
        start, body = tag.start(), tag.end()
        marks = (found for found in _STRING_OR_CLOSE.finditer(self.text, body) if found[1] is not None)
        closing = next(marks, None)
        if closing is None:
            return self.cut(FailureClass.UNTERMINATED, start)
        if closing[1] != _CLOSE:
            self.fail(FailureClass.UNTERMINATED, start, closing.start())
            return closing.start()
        calls = read_statements(self.text[body : closing.start()])
        for call in [calls] if isinstance(calls, CallFault) else calls:
            self.take(call.asking_for(_FORM) if isinstance(call, CallFault) else call, start, closing.end())
        return closing.end()


class Olmo3Format(ChatFormat):
    """The format of Olmo 3."""

    scan = _Scan
    vllm_parser = "olmo3"
    models = "an Olmo 3 model"
    asks_for = f"Python calls in {_OPEN} tags"
    template_marks = (_OPEN, "<functions>")
    template_reason = f"its chat template writes Python calls in {_OPEN} tags"
    ends = ("<|im_end|>",)
    call_ends = (_CLOSE,)
    call_marks = Marks.of(r"<\s?/?function_calls>", "<")

    def write_call(self, call: ToolCall) -> str:
        """A section of one call; raises RlfError for names that are no Python names."""
        return self._check_written(call, self.write_calls([call]))

    def is_after_call(self, text: str) -> bool:
        """Whether the section is closed; a quote that no string closes may yet hold the tag."""
        section = text[text.rfind(_OPEN) :]
        return super().is_after_call(text) and not _QUOTE.search(_STRING.sub("", section))

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        """One section of all calls."""
        return "\n".join([_OPEN, *map(write_call, calls), _CLOSE])
