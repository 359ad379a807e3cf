"""GLM-4.5 to 4.7: calls as `<tool_call>name` with `<arg_key>` and `<arg_value>` tags, values as text or JSON.

How a turn is read:
- A value is text where the tool's schema takes a string alone, JSON where it takes something else; see `schema_text`.
- A value ends at the `</arg_value>` that an `<arg_key>` or `</tool_call>` follows, so a closing tag inside a string
  ends nothing. A value that holds opening tags of arguments is two calls run together: neither its text nor what it
  seems to call is run. A whole call inside a value is part of it.
- Thinking, prose, and what looks like a call are read as in every format with tags; see `rlf.chat.scan`.
- A turn ends with the token that opens the next role: `<|observation|>` after calls, `<|user|>` after an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlf.chat.calls import CallFault
from rlf.chat.examples import read_value, write_value
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.chat.template import CallId
from rlf.core.readings import ANYTHING
from rlf.types import FailureClass, ToolCall

_OBSERVATION, _USER = "<|observation|>", "<|user|>"
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FORM = f"{_OPEN}name, then <arg_key>key</arg_key> and <arg_value>value</arg_value> for each argument, then {_CLOSE}"

# A name is a name only where arguments or the end follow: other text behind <tool_call> is no call.
_NAME = re.compile(r"([\w.\-/:]+)[ \t\r\n]*(?=<arg_key>|</tool_call>)")
# A key holds no `<`: otherwise a missing closing tag would join two arguments into one.
_KEY = re.compile(r"<arg_key>([^<]*)</arg_key>[ \t\r\n]*<arg_value>")
# A value may hold `</arg_value>` itself; it ends where the next key or the end of the call follows.
_VALUE_END = re.compile(r"</arg_value>[ \t\r\n]*(?=<arg_key>|</tool_call>)")
_ARGUMENT_TAG = re.compile(r"<arg_(?:key|value)>")
_CALL_TAG = re.compile(f"{_OPEN}|{_CLOSE}")
# Where a call whose end is missing is cut off.
_NEXT_CALL = re.compile(rf"(?:</arg_value>|{_CLOSE})[ \t\r\n]*(?={_OPEN})")
_MAX_BALANCED = 64
"""Calls of one turn whose tags are balanced; a turn of more is noise and must not cost quadratic time."""
_GRAMMAR = Grammar(
    tag=re.compile(r"(</?(?:tool_call|think)>)[ \t\r\n]*"),
    rehearsal=re.compile(rf"{_OPEN}(?:.*?{_CLOSE}|.*)", re.DOTALL),
    messages=messages(
        f"Write {_FORM}.",
        unterminated=f"The call was not run: a closing tag is missing. Write {_FORM}.",
        stray_tag=f"{_CLOSE} has no {_OPEN} before it. Write {_FORM}.",
        missing_name=f"The call has no name of a tool. Write {_FORM}.",
    ),
)


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ("num_run_together",)
    grammar = _GRAMMAR

    def __init__(self, text: str, truncated: bool, chat: ChatFormat) -> None:
        super().__init__(text, truncated, chat)
        self.num_run_together = 0

    def read(self, tag: re.Match[str]) -> int:
        if tag[1] == _CLOSE:
            return self.fail_stray(tag)
        start, name = tag.start(), _NAME.match(self.text, tag.end())
        if name is None:
            unnamed = self.text.startswith(("<arg_key>", _CLOSE), tag.end())
            return self._record_broken(
                FailureClass.MISSING_NAME if unnamed else FailureClass.BAD_CALL, start, tag.end()
            )
        return self._read_arguments(start, name[1], name.end())

    def _read_arguments(self, start: int, name: str, position: int) -> int:
        """Reads the arguments of the call that begins at `start`, and its end."""
        text, readings = self.text, self.chat.readings_by_tool.get(name, ANYTHING)
        arguments: dict[str, Any] = {}
        fault = ""
        while key := _KEY.match(text, position):
            end = _VALUE_END.search(text, key.end())
            if end is None:
                return self._record_broken(FailureClass.UNTERMINATED, start, key.end())
            if _ARGUMENT_TAG.search(text, key.end(), end.start()):
                return self._run_together(start, key.end(), end.start())
            label = key[1].strip()
            value = read_value(text[key.end() : end.start()], readings, label)
            if isinstance(value, CallFault):
                fault = fault or f"The value of {label[:24]!r} is wrong: {value.message}."
            elif label in arguments or not label:
                fault = fault or f"The argument {label[:24]!r} is given twice, or has no key."
            arguments[label] = value
            position = end.end()
        if not text.startswith(_CLOSE, position):
            return self._record_broken(FailureClass.BAD_CALL, start, position)
        position += len(_CLOSE)
        refused = CallFault(FailureClass.BAD_ARGUMENTS, f"{fault} The call was not run.") if fault else None
        return self.take(refused or ToolCall(name, arguments), start, position)

    def _run_together(self, start: int, value: int, end: int) -> int:
        """Records a value that swallowed other arguments. Only a call that plainly begins after it is read on."""
        self.num_run_together += 1
        whole = self._balanced_end(start) if self.num_run_together <= _MAX_BALANCED else None
        other = _NEXT_CALL.search(self.text, value, end)
        if other is not None and (whole is None or whole <= other.end()):
            self.fail(FailureClass.UNTERMINATED, start, other.end())
            return other.end()
        close = self.text.find(_CLOSE, end)
        last = whole or (close + len(_CLOSE) if close >= 0 else len(self.text))
        message = "An <arg_value> holds tags of other arguments: a closing tag is missing. The call was not run."
        self.fail(FailureClass.BAD_ARGUMENTS, start, last, message)
        return last

    def _balanced_end(self, start: int) -> int | None:
        """Where the call that begins at `start` ends, with every call inside it; None where it does not."""
        depth = 0
        for tag in _CALL_TAG.finditer(self.text, start):
            depth += 1 if tag.group() == _OPEN else -1
            if depth == 0:
                return tag.end()
        return None

    def _record_broken(self, kind: FailureClass, start: int, search_from: int) -> int:
        return self.fail_block(start, search_from, CallFault(kind, _GRAMMAR.messages[kind]), _CLOSE)


class Glm4Format(ChatFormat):
    """The format of GLM-4.5, 4.6 and 4.7."""

    scan = _Scan
    vllm_parser = "glm45"
    models = "a GLM-4.5, 4.6 or 4.7 model"
    asks_for = f"calls with <arg_key> in {_OPEN} tags"
    template_marks = ("<arg_key>", _OBSERVATION)
    template_reason = f"its chat template asks for calls with <arg_key> and <arg_value> in {_OPEN} tags"
    ends = (_OBSERVATION, _USER)
    call_ends = (_CLOSE,)
    thinking_marks = ("\n<think>", "</think>\n")
    call_marks = Marks.of(r"<[\s|/]{0,2}arg_(?:key|value)>", "<")

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """`<|observation|>\\n<tool_response>...`; what follows a turn that gave the word to the user is the user's."""
        if closed and turn.endswith(_USER) and not self.parse(turn, truncated=False).calls:
            return self.user_turn("\n".join(results), closed=True, turn=turn)
        # Some templates write `<|observation|>` after a turn that shows its calls alone.
        tokens = self._renderer.observation(results, [CallId("call")] * len(results), images=images)
        return tokens[1:] if closed and (not turn or turn.endswith(_OBSERVATION)) else tokens

    def user_turn(self, text: str, *, closed: bool, turn: str = "") -> list[int]:
        """`<|user|>` is the end of the turn before it, where the model has sampled it."""
        tokens = self._renderer.reply(text, _USER)
        return tokens[1:] if closed and turn.endswith(_USER) else tokens

    def write_call(self, call: ToolCall) -> str:
        """As GLM's template writes a call of the history. Raises RlfError for what the tags cannot hold."""
        readings = self.readings_by_tool.get(call.name, ANYTHING)
        lines = [f"{_OPEN}{call.name}"]
        for key, value in call.arguments.items():
            shown = write_value(value, readings, key)
            lines += [f"<arg_key>{key}</arg_key>", f"<arg_value>{shown}</arg_value>"]
        text = "\n".join([*lines, _CLOSE])
        return self._check_written(call, text)
