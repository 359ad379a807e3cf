"""Code as a call: each fenced block of Python goes to the one declared tool whose one required argument is the code.

How a turn is read:
- A block opens with a line of three or more backticks and `python` (or `py`), and ends at a line of backticks alone,
  at least as many: a shorter fence inside the code ends nothing. White space around the code is kept.
- A block of another language is prose. One without a language, called `output` or by a word that begins with `py`, is
  a BAD_CALL: it is no call, and too much like one to be part of an answer unnoticed.
- Text without a block is the answer. Thinking is read as in every format with tags; see `rlf.chat.scan`.

The turn ends as the model's template ends it; results come back as the user's words, each in an `output` fence that
its text cannot close. The spec's own messages explain to the model that code is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.apps.families.plain import text_tool
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.types import FailureClass, Message, ToolCall, ToolDescription

_FORM = "```python on a line, then the code, then ``` on a line"
_OPEN = r"(?:^|(?<=</think>))[ \t]*(?P<fence>`{3,})"
_NEARLY = r"(?:py[\w.]*|ipython[\w.]*|tool_code|code|output|tool_output)?"
_GRAMMAR = Grammar(
    tag=re.compile(rf"(</?think>|{_OPEN}[ \t]*(?P<language>[\w+\-.#]*)[^`\n]*\n)", re.MULTILINE),
    rehearsal=re.compile(r"^[ \t]*`{3,}[ \t]*(?:python|py)[ \t]*\n.*", re.MULTILINE | re.DOTALL | re.IGNORECASE),
    messages=messages(
        f"Write {_FORM}.",
        unterminated=f"The code was not run: its closing fence is missing. Write {_FORM}.",
        bad_arguments=f"The block holds no code. Write {_FORM}.",
    ),
)
# Words that models write after a fence whose code they mean to run: reported, since nothing would answer such a call.
_LOOKS = re.compile(_NEARLY, re.IGNORECASE)


class CodeFenceFormat(ChatFormat):
    """Fenced Python as calls, for any chat model."""

    near_marks = Marks.of(r"` ?` ?`[ \t]*py", "py")
    by_name = True
    names_tools = False

    def _bind_tokenizer(self) -> None:
        super()._bind_tokenizer()
        self._tool = text_tool(self.tools, "code_fence", ("python", "code"))

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolDescription]) -> list[int]:
        """The spec's own messages in the model's template; they describe the tool."""
        return self._renderer.prompt(messages, ())

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """A user's message with an `output` fence for each result and the bare words for each failure of the turn."""
        observed = self.parse(turn, truncated=False).observed if turn else ()
        shown = []
        for index, result in enumerate(results):
            failed = index < len(observed) and not isinstance(observed[index], ToolCall)
            fence = fence_around(result)
            shown.append(result if failed else f"{fence}output\n{result}\n{fence}")
        tokens = self._renderer.reply("\n".join(shown), self._ends.texts[0])
        return tokens[1:] if closed else tokens

    def _make_scan(self, text: str, truncated: bool) -> _Scan:
        return _Scan(self._ends.cut_from(text), truncated, self, self._tool)

    def write_call(self, call: ToolCall) -> str:
        """A block whose fence the code cannot close; raises RlfError for another tool."""
        code = str(call.arguments.get(self._tool[1], ""))
        fence = fence_around(code)
        text = f"{fence}python\n{code}\n{fence}"
        return self._check_written(call, text)


class _Scan(Scan):
    """Reads the blocks of one turn."""

    __slots__ = ("tool",)
    grammar = _GRAMMAR

    def __init__(self, text: str, truncated: bool, chat: ChatFormat, tool: tuple[str, str]) -> None:
        super().__init__(text, truncated, chat)
        self.tool = tool

    def read(self, tag: re.Match[str]) -> int:
        start, body, language = tag.start(), tag.end(), tag["language"].lower()
        closing = re.compile(rf"^[ \t]*`{{{len(tag['fence'])},}}[ \t]*$", re.MULTILINE).search(self.text, body)
        is_call = language in ("python", "py")
        if closing is None and (is_call or _LOOKS.fullmatch(language)):
            return self.cut(FailureClass.UNTERMINATED, start)
        end = closing.end() if closing else len(self.text)
        if is_call and closing:
            code = self.text[body : max(body, closing.start() - 1)]
            if code.strip():
                self.found.append((start, ToolCall(self.tool[0], {self.tool[1]: code})))
            else:
                self.fail(FailureClass.BAD_ARGUMENTS, start, end)
        elif _LOOKS.fullmatch(language):
            self.fail(FailureClass.BAD_CALL, start, end)
        else:
            self.prose.append((start, end))
        return end


def fence_around(text: str) -> str:
    """A code fence that the text cannot close: longer than every run of backticks in it."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
