"""gpt-oss: messages of the harmony format on the channels analysis (thinking), commentary (calls) and final (answer).

How a turn is read:
- It begins after `<|start|>assistant` and is a row of messages; `<|call|>` and `<|return|>` end the turn.
- A call is a message to `functions.NAME` on the commentary channel; it ends where its JSON ends and `<|call|>` follows,
  so a token inside a string ends nothing.
- What stands on the analysis channel up to its `<|end|>` was thought: nothing in it is run.
- The answer is the message on the final channel; text on no channel is neither answer nor call. Commentary without a
  recipient is prose beside the call.
- A result comes back from `functions.NAME`, as the model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.chat.calls import CallFault, json_at, write_json
from rlf.chat.encoding import encode_template
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks, ParsedTurn
from rlf.chat.scan import Grammar, Scan, bracket_pattern, messages
from rlf.chat.template import CallId
from rlf.core import RlfError
from rlf.types import FailureClass, ToolCall

_CALL, _RETURN, _END = "<|call|>", "<|return|>", "<|end|>"
_FORM = " to=functions.NAME<|channel|>commentary json<|message|>{...}<|call|>"
_FINAL = "<|channel|>final<|message|>"
_UNKNOWN = "unknown"

_HEADER = re.compile(
    r"(?P<start><\|start\|>assistant)?(?: ?to=(?P<first>[^\s<]+))?[ \t]*<\|channel\|>(?P<channel>\w+)"
    r"(?: to=(?P<then>[^\s<]+))?[ \t]*(?:<\|constrain\|>)?[ \t]*\w*[ \t]*<\|message\|>"
)
_TAG = re.compile(f"({_HEADER.pattern})")
# Harmony names a recipient `functions.NAME`; other recipients are built-in tools that rlf does not have.
_RECIPIENT = re.compile(r"functions\.([\w.\-/]+)")
# A message ends at a special token, or where the next message begins if the model left the token out.
_ENDS = re.compile(r"<\|(?:end|return|call)\|>|(?=<\|start\|>)")
_CALL_CLOSING = re.compile(r"[ \t\r\n]*<\|call\|>")
_BRACKETS = bracket_pattern(r"<\|(?:start|end|return|call|message|channel)\|>")
_GRAMMAR = Grammar(
    tag=_TAG,
    rehearsal=re.compile(r"(?:to=functions\.|<\|(?:channel|message|start)\|>).*", re.DOTALL),
    messages=messages(
        f"Write {_FORM}",
        in_thinking=f"A call on the analysis channel is not run. End the thinking with {_END}, then call.",
        unclosed_thinking=f"The analysis was not ended. Write {_END}, then the call or the final message.",
        unterminated=f"The call was not run: it must end with {_CALL}. Write {_FORM}",
        missing_name=f"The call has no name of a tool. Write {_FORM}",
        bad_arguments=f"The arguments are no JSON object. Write {_FORM}",
        bad_json=f"There is text between the JSON and {_CALL}. Write {_FORM}",
        two_answers=f"There are several final messages. Write one: {_FINAL}the answer{_RETURN}",
        empty=f"There is no final message and no call. Write {_FINAL}the answer{_RETURN} or call a tool.",
    ),
)


class GptOssFormat(ChatFormat):
    """The format of gpt-oss."""

    vllm_parser = "openai"
    models = "a gpt-oss model"
    asks_for = "messages on the channels analysis, commentary and final"
    template_marks = ("<|channel|>", "functions.", _CALL)
    template_reason = "its chat template writes harmony channels and calls to=functions.NAME"
    ends = (_CALL, _RETURN)
    call_marks = Marks.of(r"\bto=functions\.|<[\s|/]{0,2}(?:channel|constrain)\|>", "=functions.", "<")
    near_marks = Marks.of(r"to=functions\.|<\|(?:channel|message|constrain|start)\|>", "=functions.", "<|")
    thinks_in_tags = False
    thinking_marks = ("<|channel|>analysis<|message|>", f"{_END}<|start|>assistant")

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """A message from `functions.NAME` per result; what follows a turn that names no tool is a user message."""
        scan = self._make_scan(turn, False)
        observed = scan.run().observed[: len(results)]
        names = [item.name if isinstance(item, ToolCall) else scan.names.get(item.position, "") for item in observed]
        if turn and not any(names):
            return self.user_turn("\n".join(results), closed=closed)
        names += [""] * (len(results) - len(names))
        tokens, speak = list[int](), encode_template(self.tokenizer, self._generation_prompt)
        # The template shows one call a turn, so each result is rendered as that of its own turn.
        for name, result, shown_with in zip(names, results, images or [()] * len(results), strict=True):
            tokens = tokens[: -len(speak)] if tokens else []
            shown = self._renderer.observation([result], [CallId(name or _UNKNOWN)], images=[shown_with])
            tokens += shown[1:] if tokens or closed else shown
        return tokens

    def user_turn(self, text: str, *, closed: bool, turn: str = "") -> list[int]:
        """The template ends the turns of a history with `<|end|>`, whatever was sampled."""
        tokens = self._renderer.reply(text, _END)
        return tokens[1:] if closed else tokens

    def _make_scan(self, text: str, truncated: bool) -> _Scan:
        return _Scan(text, truncated, self)

    def write_answer(self, text: str) -> str:
        """The answer as the format marks it."""
        return f"<|channel|>final<|message|>{text}"

    def write_call(self, call: ToolCall) -> str:
        """As the template writes a call of the history, after `<|start|>assistant`; raises RlfError for other names."""
        if _RECIPIENT.fullmatch(f"functions.{call.name}") is None:
            raise RlfError(
                f"chat.format: gpt_oss cannot write a call of {call.name!r}; expected a name of letters, digits, `_`, "
                "`-`, `.` and `/`. Rename the tool, or use another `chat.format`."
            )
        arguments = write_json(dict(call.arguments))
        return f" to=functions.{call.name}<|channel|>commentary json<|message|>{arguments}{_CALL}"


class _Scan(Scan):
    """Reads the messages of one turn."""

    __slots__ = ("begin", "finals", "names", "spoken")
    grammar = _GRAMMAR

    def __init__(self, text: str, truncated: bool, chat: ChatFormat) -> None:
        super().__init__(text, truncated, chat)
        self.begin = len(text) - len(text.lstrip())
        """Where the first message begins, which needs no `<|start|>assistant`."""
        self.finals: list[tuple[int, int]] = []
        self.spoken: list[tuple[int, int]] = []
        """Spans of commentary and final messages."""
        self.names: dict[int, str] = {}
        """The tool that a failed call names, by its position."""

    def read(self, tag: re.Match[str]) -> int:
        start, body = tag.start(), tag.end()
        recipient, channel = tag["first"] or tag["then"], tag["channel"]
        if tag["start"] is None and start > self.begin:
            return self._record_broken(
                start, body, FailureClass.BAD_CALL, "Begin each message with <|start|>assistant.", ""
            )
        if channel == "analysis" and recipient is None:
            return self._read_analysis(start, body)
        if recipient is not None:
            return self._read_call(start, body, recipient, channel)
        end = _ENDS.search(self.text, body)
        if end is None and self.truncated:
            return self.cut(FailureClass.TRUNCATED, start)
        stop, after = (end.start(), end.end()) if end else (len(self.text), len(self.text))
        if channel not in ("commentary", "final"):
            self.fail(FailureClass.BAD_CALL, start, after, f"There is no channel {channel[:24]!r}. Write {_FORM}")
            return after
        self.spoken.append((body, stop))
        if channel == "final" and self.text[body:stop].strip():
            self.finals.append((body, stop))
        return after

    def said(self) -> str:
        return "".join([self.text[start:end] for start, end in self.finals]).strip()

    def finish(self) -> ParsedTurn:
        """Text on no channel is a failure; the rest is judged as in every format."""
        *stray, (tail, end) = self.prose
        for span in stray if self.truncated else self.prose:
            self._record_stray(*span)
        if len(self.finals) > 1:
            self.fail(FailureClass.TWO_ANSWERS, self.finals[1][0], self.finals[-1][1])
        left = _ENDS.sub("", self.text[tail:end]).strip() if self.truncated else ""
        self.prose = [*self.spoken, (tail if left else end, end)]
        return super().finish()

    def _record_stray(self, start: int, end: int) -> None:
        """Records text outside messages; a stop token that ends nothing says nothing."""
        if not _ENDS.sub("", self.text[start:end]).strip():
            return
        looks = self.chat.lookalikes.first(self.text[start:end]) is not None
        self.fail(FailureClass.WRONG_TAG if looks else FailureClass.EMPTY, start, end)

    def _read_analysis(self, start: int, body: int) -> int:
        end = self.text.find(_END, body)
        stop = end if end >= 0 else len(self.text)
        self.thought(body, stop)
        return end + len(_END) if end >= 0 else self.cut(FailureClass.UNCLOSED_THINKING, start)

    def _read_call(self, start: int, body: int, recipient: str, channel: str) -> int:
        """Reads the message of a call; returns the position after it."""
        named = _RECIPIENT.fullmatch(recipient)
        name = named[1] if named else ""
        read = json_at(self.text, body)
        fault = FailureClass.BAD_JSON
        if isinstance(read, CallFault):
            end = self.balanced_end(body, _BRACKETS, _CALL_CLOSING) or body
            return self._record_broken(start, end, fault, read.asking_for(f"Write {_FORM}").message, name)
        arguments, end = read
        closing = _CALL_CLOSING.match(self.text, end)
        if closing is None:
            blank = _ENDS.match(self.text, end)
            return self._record_broken(start, end, FailureClass.UNTERMINATED if blank else fault, "", name)
        if channel != "commentary" or not name:
            self._fail_call(
                FailureClass.BAD_CALL if name else FailureClass.MISSING_NAME, start, closing.end(), "", name
            )
        elif not isinstance(arguments, dict):
            self._fail_call(FailureClass.BAD_ARGUMENTS, start, closing.end(), "", name)
        else:
            self.found.append((start, ToolCall(name, arguments)))
        return closing.end()

    def _record_broken(self, start: int, search_from: int, kind: FailureClass, message: str, name: str) -> int:
        """Records a call that cannot be read, up to the token that ends its message."""
        end = _ENDS.search(self.text, search_from)
        if end is None:
            return self.cut(FailureClass.UNTERMINATED, start)
        closed = end.group() == _CALL
        self._fail_call(
            kind if closed else FailureClass.UNTERMINATED, start, end.end(), message if closed else "", name
        )
        return end.end()

    def _fail_call(self, kind: FailureClass, start: int, end: int, message: str, name: str) -> None:
        self.fail(kind, start, end, message)
        if name:
            self.names[start] = name
