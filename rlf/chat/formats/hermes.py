"""Hermes and Qwen (2.5, 3): JSON calls in `<tool_call>` tags, ChatML turns, thinking in `<think>` tags.

How a turn is read:
- Thinking ends at `</think>`, opened in the turn or by the generation prompt. A `</think>` that nothing opened ends
  thinking too: all before it was thought. Nothing thought is run; a call in it is an IN_THINKING failure.
- A call ends where its JSON ends and `</tool_call>` follows, so a tag inside a string ends nothing. A block that is
  no JSON ends where its brackets and quotes balance before a close tag, else at the first tag.
- Text beside calls is no answer. Text that looks like a call without the right tags is a BAD_CALL failure.
- A failure is structural when it reaches the end of the turn, so that what was meant after it is unknown.
"""

from __future__ import annotations

import re

from rlf.chat.calls import FORM, CallFault, as_call, json_at, write_json
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, bracket_pattern, messages
from rlf.types import FailureClass, RepairKind, ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"

_CLOSING = re.compile(rf"[ \t\r\n]*{_CLOSE}")
_BRACKETS = bracket_pattern("</?tool_call>")
_BETWEEN = f"Write {FORM} between {_OPEN} and {_CLOSE}."
_GRAMMAR = Grammar(
    tag=re.compile(r"(</?(?:tool_call|think)>)[ \t\r\n]*"),
    rehearsal=re.compile(rf"{_OPEN}(?:.*?{_CLOSE}|.*)", re.DOTALL),
    messages=messages(
        _BETWEEN,
        unterminated=f"The call was not run: {_CLOSE} is missing. {_BETWEEN}",
        stray_tag=f"{_CLOSE} has no {_OPEN} before it. {_BETWEEN}",
        bad_json=f"There is text between the JSON and {_CLOSE}. {_BETWEEN}",
    ),
)


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ()
    grammar = _GRAMMAR

    def read(self, tag: re.Match[str]) -> int:
        if tag[1] == _OPEN:
            return self._read_block(tag.start(), tag.end())
        return self.fail_stray(tag)

    def _read_block(self, start: int, body: int) -> int:
        """Reads one `<tool_call>` block whose text begins at `body`; returns the position after it."""
        read = json_at(self.text, body)
        if isinstance(read, CallFault):
            return self.fail_block(start, self.balanced_end(body, _BRACKETS, _CLOSING) or body, read, _CLOSE)
        value, end = read
        closing = _CLOSING.match(self.text, end)
        if closing is None:
            fault = CallFault(FailureClass.BAD_JSON, _GRAMMAR.messages[FailureClass.BAD_JSON])
            return self.fail_block(start, end, fault, _CLOSE)
        return self.take(as_call(value), start, closing.end())


class HermesFormat(ChatFormat):
    """The format of Qwen2.5, Qwen3 and the Hermes models."""

    scan = _Scan
    vllm_parser = "hermes"
    models = "a Qwen2.5, Qwen3 or Hermes model"
    asks_for = f"JSON calls in {_OPEN} tags"
    template_marks = (_OPEN, "arguments")
    template_reason = f"its chat template asks for calls as JSON with `arguments` in {_OPEN} tags"
    marks_are_shared = True
    ends = ("<|im_end|>",)
    call_ends = (_CLOSE,)
    call_marks = Marks.of(
        r"<(?:[|/][\s|/]?)?(?:tool|function)[-_ ]?(?:calls?|use)(?:\b|_)"
        r"|<\s[|/]?(?:tool|function)[-_ ]?(?:calls?|use)\s?[|/]?>",
        "<",
    )

    def restore_tags(self, raw: str) -> tuple[str, frozenset[RepairKind]] | None:
        """A call whose opening tag alone is missing, in its tags."""
        if raw.startswith("{") and raw.endswith(_CLOSE):
            return f"{_OPEN}\n{raw}", frozenset({RepairKind.OPENING_TAG})
        return None

    def write_call(self, call: ToolCall) -> str:
        """As Qwen's template writes a call of the history."""
        value = {"name": call.name, "arguments": dict(call.arguments)}
        return f"{_OPEN}\n{write_json(value)}\n{_CLOSE}"
