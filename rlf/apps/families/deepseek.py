"""DeepSeek V3, R1 and V3.1: calls in a section of special tokens; JSON arguments, fenced up to R1, bare from V3.1.

How a turn is read:
- A call ends where its JSON ends and its closing token follows, so a token inside a string ends nothing. Good calls of
  a section run whatever failed beside them; a section that the token limit cut runs none.
- The closing token of the section may be missing at the end of a turn: the template of R1's distilled models leaves it
  out after a single call.
- Thinking is as in `hermes`: nothing before `</think>` is run. Some templates open it after a question but not after a
  result; a turn is read as what stands before it left it.
- Templates of the family that do not mention tools get them at the end of the system message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import ClassVar

from rlf.chat.calls import CallFault, json_at, write_json
from rlf.chat.format import ChatFormat, template_of
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, bracket_pattern, messages
from rlf.types import FailureClass, Message, ToolCall, ToolDescription

_END_OF_TURN = "<｜end▁of▁sentence｜>"
_SECTION, _END_SECTION = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_OPEN, _CLOSE, _SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_SPACE = re.compile(r"\s*")
# V3 and R1: the word "function", the separator, the name, and JSON in a fence.
_FENCED_HEAD = re.compile(rf"[^<\n]*{_SEP}([^<\n]*)\n```json\n\s*")
# V3.1: the name, the separator, and JSON at once.
_BARE_HEAD = re.compile(rf"([^<\n]*){_SEP}\s*(?=[{{\[])")
# Models write the closing token with or without line breaks before it; JSON ends in a fence up to R1.
_FENCED_END = re.compile(rf"\s*```\s*{_CLOSE}")
_BARE_END = re.compile(rf"\s*{_CLOSE}")
_BRACKET = bracket_pattern("<｜tool▁calls?▁(?:begin|end)｜>")
# A call that is broken ends here at the latest.
_BOUNDARY = re.compile("(<｜tool▁call(?:▁begin|▁end|s▁end|s▁begin)｜>|</?think>)")
_FENCED_FORM = f"{_SECTION}{_OPEN}function{_SEP}NAME\n```json\n{{...}}\n```{_CLOSE}{_END_SECTION}"
_BARE_FORM = f"{_SECTION}{_OPEN}NAME{_SEP}{{...}}{_CLOSE}{_END_SECTION}"
_WRITE = "Write the call as the system message shows it."
_GRAMMAR = Grammar(
    tag=re.compile(r"(<｜tool▁calls?▁(?:begin|end)｜>|</?think>)\s*"),
    rehearsal=re.compile(rf"<｜tool▁calls?▁begin｜>(?:.*?{_END_SECTION}|.*)", re.DOTALL),
    messages=messages(
        _WRITE,
        unterminated=f"{_CLOSE} or {_END_SECTION} is missing. {_WRITE}",
        stray_tag=f"A closing token has no opening one before it. {_WRITE}",
    ),
)
_EMPTY_SECTION = CallFault(FailureClass.BAD_CALL, f"No {_OPEN} follows {_SECTION}. {_WRITE}")
_NO_SECTION = CallFault(FailureClass.BAD_CALL, f"{_SECTION} is missing before the call. {_WRITE}")
_NO_HEAD = CallFault(FailureClass.BAD_CALL, f"The call has not its name, {_SEP} and JSON in their places. {_WRITE}")
_NO_NAME = CallFault(FailureClass.MISSING_NAME, f"The call names no tool. {_WRITE}")
_NO_OBJECT = CallFault(FailureClass.BAD_ARGUMENTS, f"The arguments are no JSON object. {_WRITE}")
_MORE = CallFault(FailureClass.BAD_JSON, f"There is text between the JSON and {_CLOSE}. {_WRITE}")


class DeepseekFormat(ChatFormat):
    """The format of DeepSeek V3, R1 and V3.1."""

    vllm_parser = "deepseek_v3"
    models = "a DeepSeek V3, R1 or V3.1 model"
    asks_for = f"calls after {_SECTION}"
    template_marks: ClassVar[tuple[str, ...]] = (_SECTION, _SEP)
    template_reason = f"its chat template writes calls after {_SECTION}"
    ends = (_END_OF_TURN,)
    call_ends = (_END_SECTION,)
    call_marks = Marks.of(r"<[|｜]tool[▁_]", "<")
    always_fenced: ClassVar[bool] = False
    """Whether calls are fenced whatever the template writes."""

    def _bind_tokenizer(self) -> None:
        super()._bind_tokenizer()
        template = template_of(self.tokenizer)
        is_fenced = "```json" in template
        self._is_fenced = is_fenced or self.always_fenced
        self._tells_tools = is_fenced == self._is_fenced and re.search(r"\btools\b", template) is not None

    @classmethod
    def fits(cls, chat_template: str) -> bool:
        """Whether a template is of the family."""
        return DeepseekFormat.matches(chat_template) is not None

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolDescription]) -> list[int]:
        """Rendered by the model's own template, with the tools in the system message if it says nothing of them."""
        if self._tells_tools or not tools:
            return self._renderer.prompt(messages, tools)
        has_system = bool(messages) and messages[0].role == "system"
        system, rest = (messages[0].content + "\n\n", messages[1:]) if has_system else ("", messages)
        return self._renderer.prompt([Message("system", system + self._describe_tools(tools)), *rest], ())

    def _make_scan(self, text: str, truncated: bool) -> _Scan:
        return _Scan(self._ends.cut_from(text), truncated, self, self._is_fenced)

    def write_call(self, call: ToolCall) -> str:
        """As the template writes a call of the history. Raises RlfError for a name that it cannot hold."""
        form = _FENCED_FORM if self._is_fenced else _BARE_FORM
        before, _, after = form.partition("{...}")
        text = before.replace("NAME", call.name) + write_json(dict(call.arguments)) + after
        return self._check_written(call, text)

    def _describe_tools(self, tools: Sequence[ToolDescription]) -> str:
        """The tools in the words of DeepSeek's model card."""
        lines = ["## Tools\nYou have access to the following tools:"]
        for tool in tools:
            schema = json.dumps(dict(tool.input_schema), ensure_ascii=False)
            lines.append(f"### {tool.name}\nDescription: {tool.description}\n\nParameters: {schema}")
        form = _FENCED_FORM if self._is_fenced else _BARE_FORM
        return "\n\n".join([*lines, f"IMPORTANT: ALWAYS adhere to this exact format for tool use:\n{form}"])


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ("closing", "head")
    grammar = _GRAMMAR

    def __init__(self, text: str, truncated: bool, chat: ChatFormat, is_fenced: bool) -> None:
        super().__init__(text, truncated, chat)
        self.head = _FENCED_HEAD if is_fenced else _BARE_HEAD
        self.closing = _FENCED_END if is_fenced else _BARE_END

    def read(self, tag: re.Match[str]) -> int:
        if tag[1] == _SECTION:
            return self._read_section(tag.start(), tag.end())
        if tag[1] == _OPEN:
            return self._record_broken(tag.start(), tag.end(), _NO_SECTION)
        return self.fail_stray(tag)

    def _read_section(self, start: int, position: int) -> int:
        """Reads calls to the end of their section."""
        text, num_found = self.text, len(self.found)
        while text.startswith(_OPEN, position):
            position = self._read_call(position, position + len(_OPEN))
            position = _SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches anything
        is_empty = len(self.found) == num_found
        if text.startswith(_END_SECTION, position):
            position += len(_END_SECTION)
            if is_empty:
                self.take(_EMPTY_SECTION, start, position)
            return position
        if self.truncated and _BOUNDARY.search(text, position) is None:
            del self.found[num_found:]
            return self.cut(FailureClass.TRUNCATED, start)
        if is_empty:
            return self.fail_up_to(_BOUNDARY, _EMPTY_SECTION, start, position)
        if position < len(text):
            self.fail(FailureClass.UNTERMINATED, start, position)
        return position

    def _read_call(self, start: int, body: int) -> int:
        """Reads one call whose text begins at `body`; returns the position after it."""
        head = self.head.match(self.text, body)
        if head is None:
            return self._record_broken(start, body, _NO_HEAD)
        read = json_at(self.text, head.end())
        if isinstance(read, CallFault):
            end = self.balanced_end(head.end(), _BRACKET, self.closing) or head.end()
            return self._record_broken(start, end, read.asking_for(_WRITE))
        value, end = read
        closing = self.closing.match(self.text, end)
        if closing is None:
            return self._record_broken(start, end, _MORE)
        name = head[1].strip()
        call = ToolCall(name, value) if name and isinstance(value, dict) else _NO_OBJECT if name else _NO_NAME
        return self.take(call, start, closing.end())

    def _record_broken(self, start: int, search_from: int, fault: CallFault) -> int:
        """Records a call that cannot be read. It ends at its closing token, or before the one that shows it missing."""
        return self.fail_block(start, search_from, fault, _CLOSE, _BOUNDARY)
