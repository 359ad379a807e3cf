"""MiniCPM5: calls in XML with names in attributes, `<function name="f"><param name="a">value</param></function>`.

How a turn is read:
- A value is read as in `families.call_invoke`: text where the tool's schema takes a string alone, JSON where it takes
  something else; see `rlf.chat.examples`. Values as Python prints them are read too, since the template writes
  `True`, `None` and `['a']` so.
- A text in `<![CDATA[` and `]]>` is taken as it is, marks of XML in it too; outside, `&lt;` and the like are read as in
  XML. One that is not closed takes everything up to the last `</function>` with it: none of that is run.
- Thinking is as in `hermes`: nothing thought is run.

From the template `models/templates/openbmb-MiniCPM5-1B.jinja` of llama.cpp, and the parsers `minicpm5_detector.py` of
SGLang and `minicpm5xml_tool_parser.py` of vLLM; none of their code.
"""

from __future__ import annotations

import re
from typing import Any
from xml.sax.saxutils import unescape

from rlf.apps.families.call_invoke import InvokeForms, InvokeScan, InvokeTag
from rlf.apps.families.call_python import read_call_list
from rlf.chat.calls import CallFault, write_json
from rlf.chat.examples import read_printed, read_value, write_value
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.core.readings import ANYTHING
from rlf.types import FailureClass, ToolCall

_CLOSE, _DATA, _END_DATA = "</function>", "<![CDATA[", "]]>"
# The end of the data ends the value where another tag of the call follows; inside, nothing else means anything.
_DATA_END = re.compile(r"(\]\]>[ \t\r\n]*</param>)(?=[ \t\r\n]*(?:<param\b|</function>))")
_NEEDS_DATA = re.compile(r"[<&\n]")
_ENTITIES = {"&quot;": '"', "&apos;": "'"}


class _Scan(InvokeScan):
    """Reads the calls of one turn."""

    __slots__ = ()
    forms = InvokeForms(
        f'<function name="NAME"><param name="KEY">VALUE</param>{_CLOSE}',
        "<function(?= name=)",
        _CLOSE,
        InvokeTag("<function", "name", ">", _CLOSE),
        InvokeTag("<param", "name", r">([ \t\r\n]*<!\[CDATA\[)?", "</param>"),
    )
    grammar = forms.grammar

    def read(self, tag: re.Match[str]) -> int:
        if tag[1] == _CLOSE:
            return self.fail_stray(tag)
        start = tag.start()
        invoke = self.forms.invoke.match(self.text, start)
        after = None if invoke is None else self._read_call(invoke)
        if after is not None:
            return after
        # Where the value ends is unknown: what follows may be its text, other calls in it too.
        last = self.text.rfind(_CLOSE, start)
        if last < 0 or self.truncated:
            return self.cut(FailureClass.UNTERMINATED, start)
        self.fail(FailureClass.UNTERMINATED, start, last + len(_CLOSE))
        return last + len(_CLOSE)

    def value_end(self, kind: str | None) -> re.Pattern[str]:
        return _DATA_END if kind else super().value_end(kind)

    def read_value(self, tool: str, key: str, text: str, kind: str | None) -> Any | CallFault:
        readings = self.chat.readings_by_tool.get(tool, ANYTHING)
        text = text if kind else unescape(text, _ENTITIES)
        value = read_printed(text, readings, key)
        if not isinstance(value, CallFault):
            return value
        printed = read_call_list(f"[f(value={text})]")
        call = printed[0] if isinstance(printed, list) and len(printed) == 1 else None
        if not isinstance(call, ToolCall) or list(call.arguments) != ["value"]:
            return value
        return read_value(write_json(call.arguments["value"]), readings, key)


class MiniCPM5Format(ChatFormat):
    """The format of MiniCPM5."""

    scan = _Scan
    vllm_parser = "minicpm5"
    models = "a MiniCPM5 model"
    asks_for = "calls in <function name=...> tags with <param name=...>"
    template_marks = ("<function name=", "<param name=")
    template_reason = "its chat template writes calls as <function name=...><param name=...>"
    ends = ("<|im_end|>",)
    call_ends = (_CLOSE,)
    call_marks = Marks.of(r"<\s?function\s+name\s?=", "<")
    # HTML has no value between such tags, but in an attribute.
    near_marks = Marks.of(r"<\s?param\s+name\s?=\s?[\"'][^\"'\n]*[\"']\s?>|<\s?/\s?param\s?>", "<")

    def write_call(self, call: ToolCall) -> str:
        """As the template writes a call of the history. Raises RlfError for what the tags cannot hold."""
        readings = self.readings_by_tool.get(call.name, ANYTHING)
        parts = [f'<function name="{call.name}">']
        for key, value in call.arguments.items():
            text = write_value(value, readings, key, read_printed)
            shown = f"{_DATA}{text}{_END_DATA}" if _NEEDS_DATA.search(text) else text
            parts.append(f'<param name="{key}">{shown}</param>')
        return self._check_written(call, "".join([*parts, _CLOSE]))
