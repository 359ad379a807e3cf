"""Hermes and Qwen (2.5, 3): JSON calls in `<tool_call>` tags, ChatML turns, thinking in `<think>` tags.

How a turn is read:
- Thinking ends at `</think>`, opened in the turn or by the generation prompt. A `</think>` that nothing opened ends
  thinking too: all before it was thought. Nothing thought is run; a call in it is an IN_THINKING failure.
- A call ends where its JSON ends and `</tool_call>` follows, so a tag inside a string ends nothing. A block that is
  no JSON ends where its brackets and quotes balance before a close tag, else at the first tag.
- Text beside calls is no answer. Text that looks like a call without the right tags is a BAD_CALL failure.
- A failure is structural when it reaches the end of the turn, so that what was meant after it is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlf.chat.call_json import FORM, CallFault, as_call, read_json
from rlf.chat.encoding import check_lossless
from rlf.chat.format import ChatFormat, Parsed, template_of
from rlf.chat.template import TemplateRenderer
from rlf.core import RlfError
from rlf.types import FailureClass, Message, ParseFailure, ToolCall, ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_END_OF_TURN = "<|im_end|>"
_OPEN, _CLOSE, _THINK, _END_THINK = "<tool_call>", "</tool_call>", "<think>", "</think>"
# Marks of families that write something else than JSON in the same tags: Qwen3-Coder and GLM.
_RIVALS = ("<function=", "<arg_key>")

_TAG = re.compile(r"(</?(?:tool_call|think)>)[ \t\r\n]*")
_CLOSING = re.compile(rf"[ \t\r\n]*{_CLOSE}")
# Strings are atomic, so that scanning stays linear; a quote that never closes is the last alternative.
_BRACKET = re.compile(r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|</?tool_call>|[{}\[\]"']""", re.DOTALL)
# Another family's tag, a misspelt one, or a bare call object.
_LOOKALIKE = re.compile(
    r"""<[\s|/]{0,2}(?:(?:tool|function)[-_ ]?calls?\b|function=|python_tag\|>)|\[TOOL_CALLS\]"""
    r"""|\{\s*["']name["']\s*:\s*["'][^"'\n]*["']\s*,\s*["'](?:arguments|parameters)["']\s*:""",
    re.IGNORECASE,
)
_MAX_BALANCED = 64
"""Broken blocks of one turn whose brackets are balanced; a turn of more is noise and must not cost quadratic time."""
_BETWEEN = f"Write {FORM} between {_OPEN} and {_CLOSE}."
_MESSAGES = {
    FailureClass.UNTERMINATED: f"The call was not run: {_CLOSE} is missing. {_BETWEEN}",
    FailureClass.STRAY_TAG: f"{_CLOSE} has no {_OPEN} before it. {_BETWEEN}",
    FailureClass.IN_THINKING: f"A call inside {_THINK} is not run. Write it after {_END_THINK}.",
    FailureClass.UNCLOSED_THINKING: f"The thinking was not closed. Write {_END_THINK}, then the call or the answer.",
    FailureClass.TRUNCATED: "The turn was cut at its token limit. Be shorter.",
    FailureClass.EMPTY: "The turn is empty. Call a tool or give the answer.",
    FailureClass.BAD_CALL: f"This looks like a call but was not run. {_BETWEEN}",
    FailureClass.BAD_JSON: f"There is text between the JSON and {_CLOSE}. {_BETWEEN}",
}


class HermesFormat(ChatFormat):
    """The format of Qwen2.5, Qwen3 and the Hermes models."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Sequence[ToolDescription] = ()) -> None:
        super().__init__(tokenizer, tools)
        if self.matches(template_of(tokenizer)) is None:
            raise RlfError(
                "chat.format: hermes contradicts the model's chat template, which does not ask for JSON calls in "
                f"{_OPEN} tags. Write `chat: {{format: auto}}`, or use a Qwen2.5, Qwen3 or Hermes model."
            )
        self.stop_token_ids = _stop_token_ids(tokenizer)
        check_lossless(tokenizer)
        self._stop_texts = tuple(str(tokenizer.convert_ids_to_tokens(token)) for token in self.stop_token_ids)
        self._renderer = TemplateRenderer(tokenizer, _END_OF_TURN)
        opening = self._renderer.generation_prompt
        self._opens_thinking = opening.rfind(_THINK) > opening.rfind(_END_THINK)

    @classmethod
    def matches(cls, chat_template: str) -> str | None:
        """Templates that name `<tool_call>` and JSON `arguments`, and no other way to write them."""
        if _OPEN not in chat_template or "arguments" not in chat_template:
            return None
        if any(mark in chat_template for mark in _RIVALS):
            return None
        return f"its chat template asks for calls as JSON with `arguments` in {_OPEN} tags"

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolDescription]) -> list[int]:
        """Rendered by the model's own template."""
        return self._renderer.prompt(messages, tools)

    def observation(self, results: Sequence[str], *, closed: bool, turn: str = "") -> list[int]:
        """`\\n<|im_start|>user\\n<tool_response>\\n...` as the model's own template lays out tool messages."""
        tokens = self._renderer.observation(results)
        return tokens[1:] if closed else tokens

    def parse(self, text: str, *, truncated: bool) -> Parsed:
        """Reads a turn in one pass; the rules stand at the top of this file."""
        for stop in self._stop_texts:
            if text.endswith(stop):
                text = text[: -len(stop)]
                break
        return _Scan(text, truncated).run(self._opens_thinking)

    def write_call(self, call: ToolCall) -> str:
        """As Qwen's template writes a call of the history."""
        value = {"name": call.name, "arguments": dict(call.arguments)}
        return f"{_OPEN}\n{json.dumps(value, ensure_ascii=False, allow_nan=False)}\n{_CLOSE}"


def _stop_token_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    ids = {token.content: index for index, token in tokenizer.added_tokens_decoder.items()}
    if _END_OF_TURN not in ids:
        raise RlfError(
            f"chat.format: hermes: the model's tokenizer has no special token {_END_OF_TURN} to end a turn with. "
            "Use a Qwen2.5, Qwen3 or Hermes model, or another `chat.format`."
        )
    end, eos = ids[_END_OF_TURN], tokenizer.eos_token_id
    return (end,) if eos is None or eos == end else (end, int(eos))


class _Scan:
    """One pass over one turn: what was found so far."""

    __slots__ = ("found", "kept", "num_balanced", "prose", "text", "thoughts", "truncated")

    def __init__(self, text: str, truncated: bool) -> None:
        self.text = text
        self.truncated = truncated
        self.found: list[tuple[int, ToolCall | ParseFailure]] = []
        """Items with their positions."""
        self.prose: list[tuple[int, int]] = []
        """Spans outside thinking and blocks."""
        self.thoughts: list[str] = []
        self.num_balanced = 0
        self.kept = (0, 0, 0)
        """End of the last thinking, and how many items and spans came before it."""

    def run(self, opens_thinking: bool) -> Parsed:
        text = self.text
        position = self._think(0, 0) if opens_thinking else 0
        while tag := _TAG.search(text, position):
            self.prose.append((position, tag.start()))
            kind = tag[1]
            if kind == _OPEN:
                position = self._block(tag.start(), tag.end())
            elif kind == _THINK:
                position = self._think(tag.start(), tag.end(1))
            elif kind == _END_THINK:
                position = self._rewind(tag.start(), tag.end(1))
            else:
                position = tag.end(1)
                self._fail(FailureClass.STRAY_TAG, tag.start(), position)
        self.prose.append((position, len(text)))
        return self._finish()

    def _block(self, start: int, body: int) -> int:
        """Reads one `<tool_call>` block whose text begins at `body`; returns where to go on."""
        read = read_json(self.text, body)
        if isinstance(read, CallFault):
            return self._broken(start, self._balanced_end(body) or body, read)
        value, end = read
        closing = _CLOSING.match(self.text, end)
        if closing is None:
            fault = CallFault(FailureClass.BAD_JSON, _MESSAGES[FailureClass.BAD_JSON])
            return self._broken(start, end, fault)
        call = as_call(value)
        if isinstance(call, CallFault):
            self._fail(call.kind, start, closing.end(), call.message)
        else:
            self.found.append((start, call))
        return closing.end()

    def _broken(self, start: int, search_from: int, fault: CallFault) -> int:
        """Records a block that cannot be read. It ends at a close tag, or before the tag that shows one is missing."""
        tag = _TAG.search(self.text, search_from)
        if tag is not None and tag[1] == _CLOSE:
            self._fail(fault.kind, start, tag.end(1), fault.message)
            return tag.end(1)
        if tag is not None:
            self._fail(FailureClass.UNTERMINATED, start, tag.start())
            return tag.start()
        return self._cut(FailureClass.UNTERMINATED, start)

    def _balanced_end(self, body: int) -> int | None:
        """Where brackets opened at `body` close with `</tool_call>` next, reading quotes of both kinds; or None."""
        self.num_balanced += 1
        if self.num_balanced > _MAX_BALANCED:
            return None
        depth = 0
        for match in _BRACKET.finditer(self.text, body):
            token = match.group()
            if token in ("{", "["):
                depth += 1
            elif token in ("}", "]"):
                depth -= 1
                if depth <= 0:
                    return match.end() if depth == 0 and _CLOSING.match(self.text, match.end()) else None
            elif len(token) == 1 or token[0] == "<":
                return None
        return None

    def _think(self, start: int, inside: int) -> int:
        """Reads thinking from `inside`; `start` is where its tag begins."""
        end = self.text.find(_END_THINK, inside)
        if end < 0:
            self._thought(inside, len(self.text))
            return self._cut(FailureClass.UNCLOSED_THINKING, start)
        self._thought(inside, end)
        return self._end_of_thinking(end + len(_END_THINK))

    def _rewind(self, start: int, end: int) -> int:
        """A `</think>` that nothing opened: what was read since the last thinking was thought, not said."""
        begin, num_found, num_prose = self.kept
        del self.found[num_found:]
        del self.prose[num_prose:]
        self._thought(begin, start)
        return self._end_of_thinking(end)

    def _end_of_thinking(self, position: int) -> int:
        self.kept = (position, len(self.found), len(self.prose))
        return position

    def _thought(self, start: int, end: int) -> None:
        self.thoughts.append(self.text[start:end].strip())
        call = self.text.find(_OPEN, start, end)
        if call >= 0:
            close = self.text.find(_CLOSE, call, end)
            self._fail(FailureClass.IN_THINKING, call, end if close < 0 else close + len(_CLOSE))

    def _cut(self, kind: FailureClass, start: int) -> int:
        """Records what reaches the end of the turn without its closing tag."""
        self._fail(FailureClass.TRUNCATED if self.truncated else kind, start, len(self.text), structural=True)
        return len(self.text)

    def _fail(self, kind: FailureClass, start: int, end: int, message: str = "", *, structural: bool = False) -> None:
        raw = self.text[start:end]
        self.found.append((start, ParseFailure(kind, message or _MESSAGES[kind], raw, start, structural)))

    def _finish(self) -> Parsed:
        self._find_lookalikes()
        said = "".join(self.text[start:end] for start, end in self.prose).strip()
        answer = None
        rehearsed_only = all(isinstance(i, ParseFailure) and i.kind is FailureClass.IN_THINKING for _, i in self.found)
        tail, end = self.prose[-1]
        if self.truncated and (rehearsed_only or self.text[tail:end].strip()):
            self._cut(FailureClass.TRUNCATED, tail)
        elif rehearsed_only and said:
            answer = said
        elif not self.found:
            self._fail(FailureClass.EMPTY, 0, len(self.text), structural=True)
        self.found.sort(key=lambda placed: placed[0])
        return Parsed(tuple(item for _, item in self.found), answer, "\n".join(filter(None, self.thoughts)))

    def _find_lookalikes(self) -> None:
        # What the budget cut is TRUNCATED, whatever it was to become.
        for start, end in self.prose[: -1 if self.truncated else None]:
            found = _LOOKALIKE.search(self.text, start, end)
            if found:
                self._fail(FailureClass.BAD_CALL, found.start(), end)
