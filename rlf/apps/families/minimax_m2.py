"""MiniMax M2 and M2.5: calls in XML between `<minimax:tool_call>` tags, values as text or JSON.

How a turn is read:
- A section holds calls; see `families.call_invoke`. A value is text where the tool's schema takes a string alone, JSON
  where it takes something else; see `rlf.chat.examples`.
- Thinking, which the template opens before each turn, is as in `hermes`: nothing thought is run.
"""

from __future__ import annotations

from typing import Any

from rlf.apps.families.call_invoke import InvokeForms, InvokeScan, write_invoke
from rlf.chat.calls import CallFault
from rlf.chat.examples import read_value, write_value
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.core.readings import ANYTHING
from rlf.types import ToolCall

_SECTION = "minimax:tool_call"


class _Scan(InvokeScan):
    """Reads the calls of one turn."""

    __slots__ = ()
    forms = InvokeForms.xml(_SECTION, "", _SECTION)
    grammar = forms.grammar

    def read_value(self, tool: str, key: str, text: str, kind: str | None) -> Any | CallFault:
        return read_value(text, self.chat.readings_by_tool.get(tool, ANYTHING), key)


class MinimaxM2Format(ChatFormat):
    """The format of MiniMax M2 and M2.5."""

    scan = _Scan
    vllm_parser = "minimax_m2"
    models = "a MiniMax M2 or M2.5 model"
    asks_for = f"<invoke name=...> calls in <{_SECTION}> tags"
    template_marks = (f"<{_SECTION}>", "<invoke name=")
    template_reason = f"its chat template writes <invoke name=...> calls in <{_SECTION}> tags"
    ends = ("[e~[",)
    call_ends = (f"</{_SECTION}>",)
    call_marks = Marks.of(r"<\s?/?[\w\-]{1,20}:(?:tool|function)_?calls?\b|<\s?/?\w{1,12}:invoke\b", "<")

    def write_call(self, call: ToolCall) -> str:
        """As the template writes a call of the history. Raises RlfError for what the tags cannot hold."""
        readings = self.readings_by_tool.get(call.name, ANYTHING)
        text = write_invoke(call, _SECTION, "", lambda key, value: ("", write_value(value, readings, key)))
        return self._check_written(call, text)
