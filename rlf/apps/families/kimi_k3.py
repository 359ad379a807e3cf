"""Kimi K3: calls in tags of special tokens, `<|open|>call tool="f" index="1"<|sep|>`; each value says its type.

How a turn is read:
- A turn is a row of channels: `think`, `response` with the text, `tools` with the calls. `<|open|>NAME<|sep|>` opens
  one, `<|close|>NAME<|sep|>` closes it; the prompt has opened the first. Nothing in `think` is run.
- A section of calls is read as in `families.call_invoke`. An argument with `type="string"` is its text, verbatim; with
  another type it is JSON. One without is refused, and so are arguments as one JSON text.
- Names in attributes are written with `&amp;` and `&quot;`, values as they are.
- A result comes back as a message of its tool, numbered as its call is.

From the template `models/templates/Kimi-K3.jinja` and the parser `common/parsers/kimi-k3.cpp` of llama.cpp, and
`kimi_k3_tool_parser.py` of vLLM; none of their code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlf.apps.families.call_invoke import InvokeForms, InvokeScan, InvokeTag
from rlf.chat.calls import CallFault, json_at, write_json
from rlf.chat.encoding import encode_template
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Quotes
from rlf.chat.template import CallId
from rlf.core.readings import kind_of
from rlf.types import FailureClass, ToolCall

_END_OF_TURN = "<|end_of_msg|>"
_TYPES = frozenset({"array", "boolean", "null", "number", "object"})


def _open(tag: str) -> str:
    return f"<|open|>{tag}<|sep|>"


def _close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


def _escape(name: str) -> str:
    return name.replace("&", "&amp;").replace('"', "&quot;")


_SECTION, _END_SECTION, _END_RESPONSE = _open("tools"), _close("tools"), _close("response")
_ENDS = f"{_END_RESPONSE}{_close('message')}{_END_OF_TURN}"
_OPENS_CALL, _OPENS_ARGUMENT = '<|open|>call tool="{}" index="{}"<|sep|>', '<|open|>argument key="{}" type="{}"<|sep|>'
_END_CALL, _END_ARGUMENT = _close("call"), _close("argument")
_INSIDE = f"{_OPENS_CALL.format('NAME', 1)}{_OPENS_ARGUMENT.format('KEY', 'string')}VALUE{_END_ARGUMENT}{_END_CALL}"
_CHANNEL = re.compile(r"<\|(?:open\|>response|close\|>(?:response|message))<\|sep\|>")
_THINKING = re.compile(r"<\|(?:open|close)\|>think<\|sep\|>")
_NO_TYPE = CallFault(FailureClass.BAD_ARGUMENTS, f"its type is none of string, {', '.join(sorted(_TYPES))}")
_NO_JSON = CallFault(FailureClass.BAD_ARGUMENTS, 'it is no JSON; write type="string" for a text')


class _Scan(InvokeScan):
    """Reads the channels of one turn."""

    __slots__ = ()
    forms = InvokeForms(
        f"{_SECTION}{_INSIDE}{_END_SECTION}",
        re.escape(_SECTION),
        re.escape(_END_SECTION),
        InvokeTag(r"<\|open\|>call", "tool", r'(?: index="[^"\n]*")?<\|sep\|>', re.escape(_END_CALL)),
        InvokeTag(r"<\|open\|>argument", "key", r'(?: type="([^"\n]*)")?<\|sep\|>', re.escape(_END_ARGUMENT)),
        rf"{_CHANNEL.pattern}|</?think>",
    )
    grammar = forms.grammar

    def read(self, tag: re.Match[str]) -> int:
        if _CHANNEL.fullmatch(tag[1]) is None:
            return super().read(tag)
        self.quotes = Quotes()  # what the response has opened ends with it
        return tag.end(1)

    def read_name(self, text: str) -> str:
        return text.replace("&quot;", '"').replace("&amp;", "&")

    def read_value(self, tool: str, key: str, text: str, kind: str | None) -> Any | CallFault:
        if kind == "string":
            return text
        if kind not in _TYPES:
            return _NO_TYPE
        read = json_at(text.strip(), 0)
        return _NO_JSON if isinstance(read, CallFault) or read[1] != len(text.strip()) else read[0]


class KimiK3Format(ChatFormat):
    """The format of Kimi K3."""

    scan = _Scan
    vllm_parser = "kimi_k3"
    models = "a Kimi K3 model"
    asks_for = f"calls between {_SECTION} and {_END_SECTION}"
    template_marks = ("<|open|>", "<|close|>", "<|sep|>", _END_OF_TURN)
    template_reason = "its chat template writes tags of <|open|>, <|close|> and <|sep|>"
    ends = (_END_OF_TURN,)
    call_marks = Marks.of(r"<\s?\|\s?(?:open|close|sep)\s?\|?>", "<")
    think = (_open("think"), _close("think"))
    thinking_marks = (_open("think"), _close("think") + _open("response"))
    thinks_in_tags = False

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """A message of its tool per result; what follows a turn that calls nothing becomes a message of the user."""
        calls = self._name_results(results, turn)
        if turn and not self.parse(turn, truncated=False).calls:
            return self.user_turn("\n".join(results), closed=closed)
        # The template looks a result's call up by an id that it does not write.
        numbered = [CallId(call.name, str(index)) for index, call in enumerate(calls)]
        tokens = self._renderer.observation(results, numbered, images=images)
        return tokens[1:] if closed else tokens

    def user_turn(self, text: str, *, closed: bool, turn: str = "") -> list[int]:
        """The template closes the channel and the message before the token that ends a turn, as the model has done."""
        tokens = self._renderer.reply(text, _ENDS)
        return tokens[len(encode_template(self.tokenizer, _ENDS)) - (0 if closed else 1) :]

    def find_call(self, text: str, start: int = 0) -> int | None:
        """As in every format; a whole tag of a channel without calls is none."""
        for tag in (_CHANNEL, _THINKING):
            text = tag.sub(lambda found: " " * len(found.group()), text)
        return super().find_call(text, start)

    def write_call(self, call: ToolCall) -> str:
        """A section of one call. Raises RlfError for what the tags cannot hold."""
        return self.write_calls([call])

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        """One section of all calls, after the end of the response that stands before it."""
        written = [self._check_written(call, _write_section([call])) for call in calls]
        return written[0] if len(written) == 1 else _write_section(calls)

    def write_answer(self, text: str) -> str:
        """The response to its end."""
        return f"{text}{_END_RESPONSE}{_close('message')}"


def _write_section(calls: Sequence[ToolCall]) -> str:
    parts = [_END_RESPONSE, _SECTION]
    for index, call in enumerate(calls, 1):
        parts.append(_OPENS_CALL.format(_escape(call.name), index))
        for key, value in call.arguments.items():
            kind = kind_of(value).replace("integer", "number")
            parts.append(_OPENS_ARGUMENT.format(_escape(key), kind))
            parts += [value if isinstance(value, str) else write_json(value), _END_ARGUMENT]
        parts.append(_END_CALL)
    return "".join([*parts, _END_SECTION])
