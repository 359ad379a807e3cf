"""Granite 3.0 to 3.3: `<|tool_call|>` and a JSON list of calls, `[{"name": ..., "arguments": {...}}]`.

How a turn is read:
- The list ends where its JSON ends, so a bracket or mark inside a string ends nothing. One call of a list may fail
  beside others that run; a list that is no JSON runs none of its calls.
- Thinking, which 3.2 and 3.3 write in `<think>` tags, is as in `hermes`: nothing thought is run.

Granite 4 writes calls as `hermes` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.chat.calls import FORM, CallFault, as_call, json_at, write_json
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.types import FailureClass, ToolCall

_OPEN = "<|tool_call|>"
_WRITE = f"Write {_OPEN}[{FORM}]."
# Where a list that is no JSON ends at the latest.
_MARK = re.compile(r"(<\|tool_call\|>|</?think>)")
_GRAMMAR = Grammar(
    tag=re.compile(r"(<\|tool_call\|>|</?think>)\s*"),
    rehearsal=re.compile(r"<\|tool_call\|>.*", re.DOTALL),
    messages=messages(_WRITE, unterminated=f"The call was not run: its list is not closed. {_WRITE}"),
)
_NO_LIST = CallFault(FailureClass.BAD_CALL, f"No list of calls follows {_OPEN}. {_WRITE}")


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ()
    grammar = _GRAMMAR

    def read(self, tag: re.Match[str]) -> int:
        start, body = tag.start(), tag.end()
        if not self.text.startswith("[", body):
            return self.fail_up_to(_MARK, _NO_LIST, start, body)
        read = json_at(self.text, body)
        if isinstance(read, CallFault):
            return self.fail_up_to(_MARK, read.asking_for(_WRITE), start, body)
        values, end = read
        if not values:
            self.take(_NO_LIST, start, end)
        for value in values:
            self.take(as_call(value), start, end)
        return end


class GraniteFormat(ChatFormat):
    """The format of Granite 3.0 to 3.3."""

    scan = _Scan
    vllm_parser = "granite"
    models = "a Granite 3 model"
    asks_for = f"a JSON list of calls after {_OPEN}"
    template_marks = ("<|start_of_role|>", _OPEN)
    template_reason = f"its chat template asks for a JSON list of calls after {_OPEN}"
    ends = ("<|end_of_text|>",)
    call_ends = ("]",)
    call_marks = Marks.of(r"<\s?\|\s?tool_call\s?\|\s?>", "<")

    def write_call(self, call: ToolCall) -> str:
        """A list of one call."""
        return self.write_calls([call])

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        """One list of all calls."""
        return _OPEN + write_json([{"name": call.name, "arguments": dict(call.arguments)} for call in calls])
