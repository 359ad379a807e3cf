"""Llama 3.1 to 3.3: a call is a JSON object `{"name": ..., "parameters": {...}}`, bare or after `<|python_tag|>`.

How a turn is read:
- No tag separates a call from text, so every JSON object is checked: it is a call when it has a `name` and `parameters`
  (or `arguments`), an attempt that failed when it only looks so, and part of the answer otherwise. Several calls follow
  one another, with `;` or white space between.
- A call in quotes, in a code fence, in a list or inside another object is not run: it is BAD_CALL.
- `<|python_tag|>` says that a call follows: JSON, or `name.call(key="value")` as the template writes builtin tools.
  Anything else after it is code, which no tool was declared for.
- Thinking, which some models of the family were taught, is as in `hermes`: nothing thought is run.
"""

from __future__ import annotations

import re
from typing import Any

from rlf.chat.calls import FORM, CallFault, json_at, write_json
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, balanced_end, bracket_pattern, messages
from rlf.types import FailureClass, ToolCall

_PYTHON = "<|python_tag|>"
# `brave_search.call(query=...)`: how Llama 3.1 writes calls of its own tools behind <|python_tag|>.
_BUILTIN = re.compile(r"([A-Za-z_]\w*)\.call\(\s*")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)\s*=\s*")
# After a value either the next argument or the end of the call; anything else is not a literal.
_NEXT_KEYWORD = re.compile(r"\s*(,\s*|\))")
_THINKING = re.compile(r"</?think>")
_ARGUMENTS = re.compile(r'"(?:parameters|arguments)"\s*:')
# Broken JSON that was to be a call.
_CALL_LIKE = re.compile(
    r"""[{\[]\s*\{?\s*(?:\\?["'“”]?(?:name|function)\\?["'“”]?\s*[:=]"""
    r"""|[^{}]{0,300}?(?:parameters|arguments)\\?["'“”]?\s*[:=]\s*\\?["'“”{\[])"""
)
# What shows that an object is quoted, in another family's tags, or part of something else.
_BEFORE = re.compile(
    r"""(?:[\[('"`“]|```\w*|}\s*,|[{,]\s*["']?\w+["']?\s*[:=]|<(?!\|python_tag|/?think)[^<>]{1,24}>)\s*\Z"""
)
# The same behind it: a closing quote or bracket.
_AFTER = re.compile(r"""[ \t]*[\]}),'"`”:]""")
# Characters in front of JSON that `_BEFORE` looks at; its longest form has 24 and spaces.
_REACH = 40
_BRACKET = bracket_pattern(r"<\|python_tag\|>|</?think>")
# Matches at once: bare JSON has no closing tag to look for.
_NO_CLOSING = re.compile("")
_MAX_BROKEN = 64
"""Broken JSON of one turn that is looked at; a turn of more is noise and must not cost quadratic time."""

_FORM = '{"name": ..., "parameters": {...}}'
_WRITE = f"Write {_FORM}."
_GRAMMAR = Grammar(
    tag=re.compile(r"(<\|python_tag\|>|</?think>|\{|\[(?=\s*\{))[ \t\r\n]*"),
    rehearsal=re.compile(
        r"<\|python_tag\|>.*|\{\s*\"name\"\s*:\s*\"[^\"]*\"\s*,\s*\"(?:parameters|arguments)\".*", re.DOTALL
    ),
    messages=messages(_WRITE, unterminated=f"The call was not run: it is not closed. {_WRITE}"),
)
_NESTED = CallFault(FailureClass.BAD_CALL, f"The call stands inside something else. {_WRITE} Write it alone.")
_LIST = CallFault(FailureClass.BAD_CALL, f"Calls are not written as a list. Write {_FORM}; {_FORM}.")
_OPEN_JSON = CallFault(FailureClass.BAD_JSON, f"The call is not valid JSON: a bracket is not closed. {_WRITE}")
_CODE = CallFault(FailureClass.BAD_CALL, f"What follows {_PYTHON} is no call, and no code is run. {_WRITE}")
_NO_NAME = CallFault(FailureClass.MISSING_NAME, f'The call has no "name" of a tool. {_WRITE}')
_BAD_KEYWORDS = CallFault(
    FailureClass.BAD_ARGUMENTS, f"The arguments are not key=value pairs with JSON values, each key once. {_WRITE}"
)


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ("num_broken",)
    grammar = _GRAMMAR

    def __init__(self, text: str, truncated: bool, chat: ChatFormat) -> None:
        super().__init__(text, truncated, chat)
        self.num_broken = 0

    def read(self, tag: re.Match[str]) -> int:
        if tag[1] != _PYTHON:
            return self._read_json(tag.start(), tag.start(), is_call=False)
        if self.text.startswith(("{", "["), tag.end()):
            return self._read_json(tag.start(), tag.end(), is_call=True)
        return self._read_builtin(tag.start(), tag.end())

    def _read_json(self, start: int, body: int, *, is_call: bool) -> int:
        """Reads the object or list at `body`; `is_call` means that it cannot be part of an answer."""
        read: tuple[Any, int] | CallFault | None = None
        if self.num_broken <= _MAX_BROKEN:
            read = json_at(self.text, body)
        if read is None or isinstance(read, CallFault):
            return self._record_broken(start, body, read, is_call=is_call)
        value, end = read
        named = isinstance(value, dict) and value.get("name") in [tool.name for tool in self.chat.tools]
        if not (is_call or named or _ARGUMENTS.search(self.text, body, end)):
            self.prose.append((start, end))
            return end
        return self.take(self._as_call(value, body, end), start, end)

    def _as_call(self, value: Any, start: int, end: int) -> ToolCall | CallFault:
        if isinstance(value, list):
            return _LIST
        if _BEFORE.search(self.text[max(self.kept[0], start - _REACH) : start]) or _AFTER.match(self.text, end):
            return _NESTED
        return _make_call(value)

    def _record_broken(self, start: int, body: int, fault: CallFault | None, *, is_call: bool) -> int:
        """Records JSON that cannot be read, unless it is part of an answer."""
        if not is_call and _CALL_LIKE.match(self.text, body) is None:
            self.num_broken += 1
            self.prose.append((start, body + 1))
            return body + 1
        end = (
            None
            if fault is None or self.num_broken > _MAX_BROKEN
            else balanced_end(self.text, body, _BRACKET, _NO_CLOSING)
        )
        self.num_broken += 1
        if fault is None or end is None:
            return self.fail_up_to(_THINKING, _OPEN_JSON, start, body)
        self.fail(fault.kind, start, end, fault.message.replace(FORM, _FORM))
        return end

    def _read_builtin(self, start: int, body: int) -> int:
        """Reads `name.call(key=value, ...)`."""
        head = _BUILTIN.match(self.text, body)
        if head is None:
            return self.fail_up_to(_THINKING, _CODE, start, body)
        arguments: dict[str, Any] = {}
        position = head.end()
        if self.text.startswith(")", position):
            self.found.append((start, ToolCall(head[1], arguments)))
            return position + 1
        while keyword := _KEYWORD.match(self.text, position):
            read = json_at(self.text, keyword.end())
            after = None if isinstance(read, CallFault) else _NEXT_KEYWORD.match(self.text, read[1])
            if isinstance(read, CallFault) or after is None or keyword[1] in arguments:
                break
            arguments[keyword[1]] = read[0]
            position = after.end()
            if after[1] == ")":
                self.found.append((start, ToolCall(head[1], arguments)))
                return position
        return self.fail_up_to(_THINKING, _BAD_KEYWORDS, start, body)


class Llama3Format(ChatFormat):
    """The format of Llama 3.1, 3.2 and 3.3."""

    scan = _Scan
    vllm_parser = "llama3_json"
    models = "a Llama 3.1, 3.2 or 3.3 model"
    asks_for = f"calls as {_FORM}"
    template_marks = ("<|start_header_id|>", '"parameters"')
    template_reason = 'its chat template has <|start_header_id|> and asks for calls as JSON with "parameters"'
    marks_are_shared = True
    ends = ("<|eot_id|>", "<|eom_id|>")
    call_ends = ("}",)
    call_marks = Marks.of(r"<[\s|/]{0,2}python_tag\|>", "<")

    def write_call(self, call: ToolCall) -> str:
        """As Llama's template writes a call of the history."""
        value = {"name": call.name, "parameters": dict(call.arguments)}
        return write_json(value)


def _make_call(value: dict[str, Any]) -> ToolCall | CallFault:
    """The call that an object is."""
    given = [key for key in ("parameters", "arguments") if key in value]
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return _NO_NAME if given else _NESTED
    if len(given) != 1:
        return CallFault(FailureClass.BAD_ARGUMENTS, f'"parameters" must be given, and once. {_WRITE}')
    arguments = value[given[0]]
    if not isinstance(arguments, dict):
        return CallFault(FailureClass.BAD_ARGUMENTS, f'"{given[0]}" is no JSON object. {_WRITE}')
    if value.keys() - {"name", given[0]} and not (value.get("type") == "function" and len(value) == 3):
        return CallFault(FailureClass.BAD_CALL, f'A call has no keys but "name" and "parameters". {_WRITE}')
    return ToolCall(name, arguments)
