"""Kimi K2: calls with ids `functions.name:0` and JSON arguments in one section of special tokens.

How a turn is read:
- `<|tool_calls_section_begin|>`, any number of calls, `<|tool_calls_section_end|>`; a section that does not end runs
  none of its calls, and a call outside a section is none.
- A call ends where its JSON ends and `<|tool_call_end|>` follows, so a mark inside a string ends nothing.
- Thinking, prose, and what looks like a call are read as in every format with tags; see `rlf.chat.scan`.
- A result repeats the id of its call (`## Return of functions.search:0`), as the model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.chat.calls import CallFault, json_at, write_json
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, bracket_pattern, messages
from rlf.chat.template import CallId
from rlf.core import RlfError
from rlf.types import FailureClass, ParseFailure, ToolCall

_END_OF_TURN = "<|im_end|>"
_BEGIN, _END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _ARGUMENTS, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_FORM = f"{_BEGIN}{_CALL}functions.NAME:0{_ARGUMENTS}{{...}}{_CALL_END}{_END}"

_ID = re.compile(
    rf"[ \t\r\n]*((?:functions\.)?((?!functions\.)[\w.\-/]+):\d+)[ \t\r\n]*{re.escape(_ARGUMENTS)}[ \t\r\n]*"
)
# Tells an id without a name (MISSING_NAME) from any other broken id (BAD_CALL).
_NAMELESS = re.compile(rf"[ \t\r\n]*(?:functions\.)?(?::\d+)?[ \t\r\n]*(?:{re.escape(_ARGUMENTS)}|\{{)")
_CALL_CLOSING = re.compile(rf"[ \t\r\n]*{re.escape(_CALL_END)}")
_MARK = r"<\|tool_calls_section_(?:begin|end)\|>|<\|tool_call_(?:begin|end)\|>"
_IN_SECTION = re.compile(f"({_MARK})")
_BRACKETS = bracket_pattern(_MARK)
_GRAMMAR = Grammar(
    tag=re.compile(rf"({_MARK}|</?think>)[ \t\r\n]*"),
    rehearsal=re.compile(rf"(?:{re.escape(_BEGIN)}|{re.escape(_CALL)})(?:.*{re.escape(_CALL_END)}|.*)", re.DOTALL),
    messages=messages(
        f"Write {_FORM}.",
        unterminated=f"The call was not run: a closing token is missing. Write {_FORM}.",
        stray_tag=f"This token has no {_BEGIN} before it. Write {_FORM}.",
        missing_name=f"The call has no name of a tool. Write {_FORM}.",
        bad_arguments=f"The arguments are no JSON object. Write {_FORM}.",
        bad_json=f"There is text between the JSON and {_CALL_END}. Write {_FORM}.",
    ),
)


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ("ids",)
    grammar = _GRAMMAR

    def __init__(self, text: str, truncated: bool, chat: ChatFormat) -> None:
        super().__init__(text, truncated, chat)
        self.ids: dict[int, tuple[ToolCall | ParseFailure, str]] = {}
        """The items, and the ids that the model wrote for them, by the identity of the item."""

    def read(self, tag: re.Match[str]) -> int:
        start, mark = tag.start(), tag[1]
        if mark == _BEGIN:
            return self._read_section(start, tag.end())
        if mark == _CALL:
            # The whole call is no call, and what it holds is not read as prose.
            end = self._read_call(start, tag.end(1))
            del self.found[-1]
            self.fail(FailureClass.BAD_CALL, start, end, structural=end == len(self.text))
            return end
        return self.fail_stray(tag)

    def _read_section(self, start: int, position: int) -> int:
        """Reads the calls of a section up to its end; without one, the whole section is a failure."""
        text, num_found = self.text, len(self.found)
        while mark := _IN_SECTION.search(text, position):
            if text[position : mark.start()].strip():
                self.fail(FailureClass.BAD_CALL, position, mark.start())
            position = mark.end()
            if mark[1] == _BEGIN:
                del self.found[num_found:]
                self.fail(FailureClass.UNTERMINATED, start, mark.start())
                return mark.start()
            if mark[1] == _END:
                if len(self.found) == num_found:
                    self.fail(FailureClass.BAD_CALL, start, position, f"The section holds no call. Write {_FORM}.")
                return position
            if mark[1] == _CALL:
                position = self._read_call(mark.start(), position)
            elif mark[1] == _CALL_END:
                self.fail(FailureClass.STRAY_TAG, mark.start(), position)
        del self.found[num_found:]
        return self.cut(FailureClass.UNTERMINATED, start)

    def _read_call(self, start: int, position: int) -> int:
        """Reads one call; `position` is past its first token. Returns the position after it."""
        text = self.text
        written = _ID.match(text, position)
        if written is None:
            nameless = _NAMELESS.match(text, position)
            return self._record_broken(
                FailureClass.MISSING_NAME if nameless else FailureClass.BAD_CALL, start, position
            )
        value = json_at(text, written.end())
        if isinstance(value, CallFault):
            end = self.balanced_end(written.end(), _BRACKETS, _CALL_CLOSING) or written.end()
            return self._record_broken(
                FailureClass.BAD_JSON, start, end, value.asking_for(f"Write {_FORM}.").message, written[1]
            )
        arguments, end = value
        closing = _CALL_CLOSING.match(text, end)
        if closing is None:
            return self._record_broken(FailureClass.BAD_JSON, start, end, given=written[1])
        if isinstance(arguments, dict):
            self.found.append((start, ToolCall(written[2], arguments)))
        else:
            self.fail(FailureClass.BAD_ARGUMENTS, start, closing.end())
        self._remember_id(written[1])
        return closing.end()

    def _remember_id(self, given: str) -> None:
        item = self.found[-1][1]
        self.ids[id(item)] = (item, given)

    def _record_broken(
        self, kind: FailureClass, start: int, search_from: int, message: str = "", given: str = ""
    ) -> int:
        """Records a call that cannot be read: to its end, or to the mark that shows that the end is missing."""
        end = self.fail_block(start, search_from, CallFault(kind, message), _CALL_END, _IN_SECTION)
        if given:
            self._remember_id(given)
        return end


def _call_id(given: str, index: int) -> CallId:
    written = given or f"functions.unknown:{index}"
    return CallId(written.removeprefix("functions.").rpartition(":")[0], written)


class KimiK2Format(ChatFormat):
    """The format of Kimi K2, Instruct and Thinking."""

    scan = _Scan
    vllm_parser = "kimi_k2"
    models = "a Kimi K2 model"
    asks_for = f"calls between {_BEGIN} and {_END}"
    template_marks = (_BEGIN, _ARGUMENTS)
    template_reason = f"its chat template writes calls between {_BEGIN} and {_END}"
    ends = (_END_OF_TURN,)
    call_ends = (_END,)
    call_marks = Marks.of(r"<\|tool_calls?_(?:section|begin|end|argument)", "<")
    near_marks = Marks.of(r"functions\.[\w.\-]+:\d+", "functions.")

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """A tool message per result, under the id that the model gave its call; a failed call without one gets one.

        What follows a turn that calls nothing is said by the user.
        """
        scan = _Scan(self._ends.cut_from(turn), False, self)
        parsed = scan.run()
        if turn and not parsed.calls:
            tokens = self._renderer.reply("\n".join(results), _END_OF_TURN)
        else:
            known = [scan.ids.get(id(item), (item, ""))[1] for item in parsed.observed[: len(results)]]
            known += [""] * (len(results) - len(known))
            calls = [_call_id(given, i) for i, given in enumerate(known)]
            tokens = self._renderer.observation(results, calls, images=images)
        return tokens[1:] if closed else tokens

    def write_call(self, call: ToolCall) -> str:
        """A section of one call, as Kimi's template writes it; raises RlfError for a name that an id cannot hold."""
        return self.write_calls([call])

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        """A section of several calls."""
        parts = [_BEGIN]
        for index, call in enumerate(calls):
            text = f"{_CALL}functions.{call.name}:{index}{_ARGUMENTS}"
            if _ID.fullmatch(text, len(_CALL)) is None:
                raise RlfError(
                    f"chat.format: kimi_k2 cannot write a call of {call.name!r}; expected a name of letters, digits, "
                    "`_`, `-`, `.` and `/`. Rename the tool, or use another `chat.format`."
                )
            parts.append(f"{text}{write_json(dict(call.arguments))}{_CALL_END}")
        return "".join([*parts, _END])
