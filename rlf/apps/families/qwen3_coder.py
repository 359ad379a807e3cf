"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3: calls in XML, `<function=name><parameter=key>value`, ChatML turns.

How a turn is read:
- Thinking is as in `hermes`: nothing thought is run.
- A value is bare text between tags, less one line break at either end; the tool's schema says what it is
  (`rlf.chat.examples`). It ends at a `</parameter>` that another tag of the call follows, so that the tag alone
  inside a text ends nothing. A value that holds the beginning of a parameter or function, or a closing tag that names
  one (`</parameter=count>`), is not closed: nothing up to the end of that call is run, be it the call's own text or
  another call.
- A call has one function, and is read only between `<tool_call>` and `</tool_call>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rlf.chat.calls import CallFault
from rlf.chat.examples import read_printed, write_value
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.core.readings import ANYTHING, Readings
from rlf.types import FailureClass, RepairKind, ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION = re.compile(r"<function=([^>\n]*)>\s*")
# The template adds one line break after the tag; further ones belong to the value.
_PARAMETER = re.compile(r"<parameter=([^>\n]*)>\n?")
# Group 1 is the end of a value; anything else inside a value shows that it was not closed, group 2 by a wrong tag.
_VALUE_END = re.compile(
    r"(\n?</parameter>)(?=\s*(?:<parameter=|</function[=>]|</tool_call>))|<(?:parameter|function)="
    r"|</function>(?=\s*</tool_call>)|(</parameter=)"
)
_SPACE = re.compile(r"\s*")
_QUOTES = "\"'`“”"
# Opening and closing tags in the order of the text: an opening one before a closing one shows a missing end.
_PARAMETER_TAG = re.compile(r"<parameter=([^>\n]*)>|</parameter>|</function>")
# Both tags: after the last parameter nothing else may come before the end of the block.
_END = re.compile(r"</function>\s*</tool_call>")
# </function> with something in it, such as </function=search>: the call still ends there.
_NEARLY_END = re.compile(r"</function[^<>\n]*>\s*</tool_call>")
# Behind such an end this shows that it stood inside a value.
_NOT_THE_END = re.compile(r"\s*</parameter>")
_FORM = f"Write {_OPEN}<function=NAME><parameter=KEY>VALUE</parameter></function>{_CLOSE}."
_GRAMMAR = Grammar(
    tag=re.compile(r"(</?(?:tool_call|think)>)[ \t\r\n]*"),
    rehearsal=re.compile(rf"(?:{_OPEN}|<function=)(?:.*?{_CLOSE}|.*)", re.DOTALL),
    messages=messages(
        _FORM,
        unterminated=f"The call was not run: {_CLOSE} is missing. {_FORM}",
        stray_tag=f"{_CLOSE} has no {_OPEN} before it. {_FORM}",
    ),
)
_NO_FUNCTION = CallFault(FailureClass.BAD_CALL, f"The block holds no <function=NAME>. {_FORM}")
_NO_NAME = CallFault(FailureClass.MISSING_NAME, f"The call names no tool. {_FORM}")
_QUOTED = CallFault(FailureClass.BAD_CALL, f"A name stands in quotes. {_FORM}")
_NO_END = CallFault(FailureClass.UNTERMINATED, f"The call was not run: </parameter> or </function> is missing. {_FORM}")
_WRONG_END = CallFault(FailureClass.WRONG_TAG, f"The call was not run: a closing tag names what it closes. {_FORM}")
_TEXT_BETWEEN = CallFault(FailureClass.BAD_CALL, f"There is text around the parameters of the call. {_FORM}")


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
        function = _FUNCTION.match(self.text, body)
        if function is None:
            return self.fail_block(start, body, _NO_FUNCTION, _CLOSE)
        name, position = function[1].strip(), function.end()
        fault = _name_fault(name)
        readings = self.chat.readings_by_tool.get(name, ANYTHING)
        arguments: dict[str, Any] = {}
        while parameter := _PARAMETER.match(self.text, position):
            end = _VALUE_END.search(self.text, parameter.end())
            if end is None:
                return self.fail_block(start, parameter.end(), _NO_END, _CLOSE)
            if end[1] is None:
                return self._record_unclosed(start, end.start(), _WRONG_END if end[2] else _NO_END)
            value = read_printed(self.text[parameter.end() : end.start()], readings, parameter[1])
            fault = fault or _parameter_fault(parameter[1], value, arguments)
            arguments[parameter[1]] = value
            position = _SPACE.match(self.text, end.end()).end()  # type: ignore[union-attr]  # it matches anything
        closing = _END.match(self.text, position)
        if closing is None:
            return self.fail_block(start, position, self._why_not_closed(position), _CLOSE)
        return self.take(fault or ToolCall(name, arguments), start, closing.end())

    def _why_not_closed(self, position: int) -> CallFault:
        if self.text.startswith("</function=", position):
            return _WRONG_END
        return _NO_END if self.text.startswith((_CLOSE, _OPEN), position) else _TEXT_BETWEEN

    def _record_unclosed(self, start: int, position: int, fault: CallFault) -> int:
        """Records a call with a value that is not closed, to the end of the call that holds `position`."""
        for end in _NEARLY_END.finditer(self.text, position):
            if _NOT_THE_END.match(self.text, end.end()) is None:
                return self.take(fault, start, end.end())
        return self.cut(FailureClass.UNTERMINATED, start)


class Qwen3CoderFormat(ChatFormat):
    """The format of Qwen3-Coder, Qwen3.5 and later, and Nemotron 3."""

    scan = _Scan
    vllm_parser = "qwen3_coder"
    models = "a Qwen3-Coder, Qwen3.5 or Nemotron 3 model"
    asks_for = f"<function=...> calls in {_OPEN} tags"
    template_marks = (_OPEN, "<function=", "<parameter=")
    template_reason = f"its chat template writes calls as <function=...><parameter=...> in {_OPEN} tags"
    ends = ("<|im_end|>",)
    call_ends = (_CLOSE,)
    call_marks = Marks.of(r"<[\s|/]{0,2}(?:function|parameter)=", "<")

    def restore_tags(self, raw: str) -> tuple[str, frozenset[RepairKind]] | None:
        """The call in its `<tool_call>` tags, and each parameter that a following tag ends with its own closing one."""
        kinds = set[RepairKind]()
        if raw.startswith("<function="):
            kinds.add(RepairKind.OPENING_TAG)
            raw = f"{_OPEN}\n{raw}"
            if _CLOSE not in raw:
                kinds.add(RepairKind.CLOSING_TAG)
                raw = re.sub(r"</function>(?!.*</function>)", f"</function>{_CLOSE}", raw, count=1, flags=re.DOTALL)
        function = _FUNCTION.search(raw)
        closed = _close_parameters(raw, self.readings_by_tool.get(function[1].strip(), ANYTHING)) if function else raw
        if closed != raw:
            kinds.add(RepairKind.CLOSING_TAG)
        return (closed, frozenset(kinds)) if kinds else None

    def write_call(self, call: ToolCall) -> str:
        """As Qwen's template writes a call of the history. Raises RlfError for what the tags cannot hold."""
        readings = self.readings_by_tool.get(call.name, ANYTHING)
        lines = [f"{_OPEN}\n<function={call.name}>\n"]
        for key, value in call.arguments.items():
            lines.append(f"<parameter={key}>\n{_write_text(value, readings, key)}\n</parameter>\n")
        text = "".join([*lines, f"</function>\n{_CLOSE}"])
        return self._check_written(call, text)


def _close_parameters(raw: str, readings: Readings) -> str:
    """The call with `</parameter>` before each tag on a line of its own that shows it missing.

    Only where every parameter is one that the tool declares: a tag inside a text may be part of it.
    """
    parts, position, is_open = list[str](), 0, False
    for tag in _PARAMETER_TAG.finditer(raw):
        if tag[1] is not None and tag[1] not in readings.names:
            return raw
        if is_open and tag.group() != "</parameter>":
            if raw[tag.start() - 1] != "\n":
                return raw
            parts += [raw[position : tag.start()], "</parameter>\n"]
            position = tag.start()
        elif not is_open and tag.group() == "</parameter>":
            return raw
        is_open = tag[1] is not None
    return "".join([*parts, raw[position:]])


def _write_text(value: Any, readings: Readings, name: str) -> str:
    """The text of a value; JSON that holds a tag which would end it early writes the tag another way."""
    text = write_value(value, readings, name, read_printed)
    if _VALUE_END.search(text) is None:
        return text
    as_json = json.dumps(value).replace("<", "\\u003c")
    return as_json if read_printed(as_json, readings, name) == value else text


def _name_fault(name: str) -> CallFault | None:
    if not name:
        return _NO_NAME
    return _QUOTED if name[0] in _QUOTES or name[-1] in _QUOTES else None


def _parameter_fault(key: str, value: Any, arguments: Mapping[str, Any]) -> CallFault | None:
    if key.strip() and _name_fault(key.strip()):
        return _QUOTED
    if isinstance(value, CallFault):
        return CallFault(FailureClass.BAD_ARGUMENTS, f"The parameter {json.dumps(key[:24])}: {value.message}.")
    if key in arguments:
        return CallFault(FailureClass.BAD_ARGUMENTS, f"The parameter {json.dumps(key[:24])} is given twice.")
    return None
