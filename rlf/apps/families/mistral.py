"""Mistral: `[TOOL_CALLS]` before a JSON list of calls, or in later models before `name[ARGS]{...}` for each call.

How a turn is read:
- Both generations are read, whichever the template writes; the template's is the one that is asked for and written.
- A call ends where its JSON ends, so a mark inside a string ends nothing. Of a list each call stands for itself.
- `[THINK]` or `<think>` opens thinking, as in `hermes`: nothing thought is run.
- No generation prompt follows a conversation or a result: the model speaks after `[/INST]` and `[/TOOL_RESULTS]`.
- A result carries the id of its call (nine letters or digits); a call without one gets its number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.chat.calls import FORM, CallFault, as_call, json_at, write_json
from rlf.chat.format import ChatFormat, template_of
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, bracket_pattern, messages
from rlf.chat.template import CallId
from rlf.core import RlfError
from rlf.types import FailureClass, ToolCall

_CALLS, _ARGS = "[TOOL_CALLS]", "[ARGS]"
_THINK, _END_THINK = "[THINK]", "[/THINK]"
# Later templates write `name[CALL_ID]id[ARGS]{...}`; the look-ahead leaves the brace to the JSON decoder.
_NAMED = re.compile(r"([^\[\]{}\s\"'`]*)\s*(?:\[CALL_ID\]\s*([^\[\]{}\s]*)\s*)?(?:\[ARGS\]\s*)?(?=\{)")
# Mistral's template refuses an id that is not nine letters or digits.
_ID = re.compile(r"[A-Za-z0-9]{9}")
_AFTER = re.compile(r"\s*[\]}),\"'`]")
_NEXT_MARK = re.compile(r"\[TOOL_CALLS\]|</?think>|\[/?THINK\]")
_BRACKET = bracket_pattern(r"</?think>")
_NO_CLOSING = re.compile("")

_LIST_FORM = f"{_CALLS} [{FORM}]"
_NAMED_FORM = f"{_CALLS}name{_ARGS}{{...}}"
_WRITE = f"Write {_LIST_FORM} or {_NAMED_FORM}, as in the examples before."
_GRAMMAR = Grammar(
    tag=re.compile(r"(\[TOOL_CALLS\]|</?think>|\[/?THINK\])\s*"),
    rehearsal=re.compile(r"\[TOOL_CALLS\].*", re.DOTALL),
    messages=messages(_WRITE, unterminated=f"The call was not run: it is not closed. {_WRITE}"),
)
_NO_CALL = CallFault(FailureClass.BAD_CALL, f"No call follows {_CALLS}. {_WRITE}")
_EMPTY_LIST = CallFault(FailureClass.BAD_CALL, f"The list holds no call. {_WRITE}")
_NO_NAME = CallFault(FailureClass.MISSING_NAME, f"The call names no tool. {_WRITE}")
_MORE = CallFault(FailureClass.BAD_JSON, f"There is text right after the JSON of the call. {_WRITE}")


class _Scan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ("ids",)
    grammar = _GRAMMAR

    def __init__(self, text: str, truncated: bool, chat: ChatFormat) -> None:
        super().__init__(text, truncated, chat)
        self.ids: dict[int, str] = {}
        """The id that the model gave, by the identity of a call."""

    def read(self, tag: re.Match[str]) -> int:
        if tag[1] == _THINK:
            return self._read_thinking(tag.start(), tag.end(1), _END_THINK)
        if tag[1] == _END_THINK:
            return self._turn_into_thinking(tag.start(), tag.end(1))
        if self.text.startswith("[", tag.end()) and not self.text.startswith(("[ARGS]", "[CALL_ID]"), tag.end()):
            return self._read_list(tag.start(), tag.end())
        return self._read_named(tag.start(), tag.end())

    def _read_list(self, start: int, body: int) -> int:
        """Reads a JSON list of calls."""
        read = json_at(self.text, body)
        if isinstance(read, CallFault):
            return self._record_broken(start, body, read)
        value, end = read
        fault = _MORE if _AFTER.match(self.text, end) else None if value else _EMPTY_LIST
        if fault is not None:
            return self.take(fault, start, end)
        for item in value:
            given = item.get("id") if isinstance(item, dict) else None
            call = as_call({k: v for k, v in item.items() if k != "id"} if isinstance(given, str) else item)
            self._take_call(call, given, start, end)
        return end

    def _read_named(self, start: int, body: int) -> int:
        """Reads `name[ARGS]{...}`, with or without an id."""
        head = _NAMED.match(self.text, body)
        if head is None or head.end() == body:
            return self.fail_up_to(_NEXT_MARK, _NO_CALL, start, body)
        read = json_at(self.text, head.end())
        if isinstance(read, CallFault):
            return self._record_broken(start, head.end(), read)
        value, end = read
        call = ToolCall(head[1], value) if head[1] else _NO_NAME
        self._take_call(_MORE if _AFTER.match(self.text, end) else call, head[2], start, end)
        return end

    def _take_call(self, call: ToolCall | CallFault, given: str | None, start: int, end: int) -> None:
        self.take(call, start, end)
        if isinstance(call, ToolCall) and given is not None and _ID.fullmatch(given):
            self.ids[id(call)] = given

    def _record_broken(self, start: int, body: int, fault: CallFault) -> int:
        """Records a call that cannot be read, to where its brackets close or the next mark."""
        end = self.balanced_end(body, _BRACKET, _NO_CLOSING)
        fault = fault.asking_for(_WRITE)
        if end is None:
            return self.fail_up_to(_NEXT_MARK, fault, start, body)
        return self.take(fault, start, end)


class MistralFormat(ChatFormat):
    """The format of Mistral's models, from 7B v0.3 on."""

    scan = _Scan
    vllm_parser = "mistral"
    models = "a Mistral, Ministral, Magistral or Devstral model"
    asks_for = f"calls after {_CALLS}"
    template_marks = (_CALLS,)
    template_reason = f"its chat template writes calls after {_CALLS}"
    has_generation_prompt = False
    call_marks = Marks.of(r"\[\s?TOOL_CALLS?\b", "[")
    near_marks = Marks.of(r"\[/?(?:ARGS|CALL_ID|TOOL_)", "[")

    def _bind_tokenizer(self) -> None:
        if self.tokenizer.eos_token_id is None and self.fits(template_of(self.tokenizer)):
            raise RlfError("chat.format: mistral: the model's tokenizer has no eos_token; set it, e.g. to </s>.")
        super()._bind_tokenizer()
        template = template_of(self.tokenizer)
        self._is_named = _ARGS in template
        self.call_ends = ("}",) if self._is_named else ("}]",)
        self._before_list = f"{_CALLS} " if f"{_CALLS} [" in template else _CALLS

    def _end_tokens(self) -> Sequence[str]:
        return ()

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """`[TOOL_RESULTS]` for each result, under the id that the model gave its call; a call without one gets one."""
        scan = _Scan(self._ends.cut_from(turn), False, self)
        observed = scan.run().observed[: len(results)]
        known = [scan.ids.get(id(item), "") for item in observed] + [""] * (len(results) - len(observed))
        calls = [CallId("call", given or f"{index:09d}") for index, given in enumerate(known)]
        tokens = self._renderer.observation(results, calls, after_calls=False, images=images)
        return tokens[1:] if closed else tokens

    def write_call(self, call: ToolCall) -> str:
        """As the template writes a call of the history, without an id. Raises RlfError for a name it cannot hold."""
        if self._is_named:
            text = f"{_CALLS}{call.name}{_ARGS}{write_json(dict(call.arguments))}"
        else:
            text = f"{self._before_list}[{write_json({'name': call.name, 'arguments': dict(call.arguments)})}]"
        return self._check_written(call, text)
