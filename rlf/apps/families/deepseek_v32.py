"""DeepSeek V3.2 and V4: calls in DSML, `<｜DSML｜invoke name="f">`, in a section; each value says whether it is text.

How a turn is read:
- A section, `<｜DSML｜function_calls>` of V3.2 or `<｜DSML｜tool_calls>` of V4, holds calls; see
  `families.call_invoke`. A parameter with `string="true"` is its text, verbatim; with `string="false"` it is JSON. One
  without is refused.
- Thinking is as in `hermes`: nothing before `</think>` is run.

The models have no chat template of their own: one that writes DSML goes beside the tokenizer.
"""

from __future__ import annotations

from typing import Any

from rlf.apps.families.call_invoke import InvokeForms, InvokeScan, write_invoke
from rlf.chat.calls import CallFault, json_at, write_json
from rlf.chat.format import ChatFormat, template_of
from rlf.chat.marks import Marks
from rlf.types import FailureClass, ToolCall

_PREFIX = "｜DSML｜"
_SECTION, _LATER_SECTION = f"{_PREFIX}function_calls", f"{_PREFIX}tool_calls"
_NEITHER = CallFault(FailureClass.BAD_ARGUMENTS, 'string="true" or string="false" is missing')
_NO_JSON = CallFault(FailureClass.BAD_ARGUMENTS, 'it is no JSON; write string="true" for a text')


class _Scan(InvokeScan):
    """Reads the calls of one turn."""

    __slots__ = ()
    forms = InvokeForms.xml(f"{_PREFIX}(?:function|tool)_calls", _PREFIX, _SECTION)
    grammar = forms.grammar

    def read_value(self, tool: str, key: str, text: str, kind: str | None) -> Any | CallFault:
        if kind is None:
            return _NEITHER
        if kind == "true":
            return text
        read = json_at(text.strip(), 0)
        return _NO_JSON if isinstance(read, CallFault) or read[1] != len(text.strip()) else read[0]


class DeepseekV32Format(ChatFormat):
    """The format of DeepSeek V3.2 and V4."""

    scan = _Scan
    vllm_parser = "deepseek_v32"
    models = "a DeepSeek V3.2 or V4 model"
    asks_for = f"calls in <{_SECTION}>"
    template_marks = ("DSML", "invoke name=")
    template_reason = "its chat template writes calls in DSML"
    ends = ("<｜end▁of▁sentence｜>",)
    call_marks = Marks.of(r"<\s?/?\s?[|｜]{1,2}\s?DSML", "<")

    def _bind_tokenizer(self) -> None:
        super()._bind_tokenizer()
        is_later = _LATER_SECTION in template_of(self.tokenizer)
        self._section = _LATER_SECTION if is_later else _SECTION
        self.call_ends = (f"</{self._section}>",)

    def write_call(self, call: ToolCall) -> str:
        """A section of one call. Raises RlfError for what the tags cannot hold."""
        return self._check_written(call, write_invoke(call, self._section, _PREFIX, _write_parameter))


def _write_parameter(key: str, value: Any) -> tuple[str, str]:
    is_text = isinstance(value, str)
    return f' string="{write_json(is_text)}"', value if is_text else write_json(value)
