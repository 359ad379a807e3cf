"""Search-R1: `<think>`, `<search>query</search>`, results in `<information>`, `<answer>`; one text from end to end.

How a turn is read:
- The text of `<search>` goes to the one declared tool's one required argument, a string; white space around it is not
  part of it. `</search>` and `</answer>` end a turn, and what follows is fed into the same text.
- `<answer>` holds the answer; without it, a turn that does not search says nothing (EMPTY). Two answers, or an answer
  beside a search, are none.
- A block ends at its closing tag; another tag of the format before it shows that the closing tag is missing.
- `<information>` is never the policy's to write.
- In a result the tags above are marked as text by a backslash (`<\\/information>`).

The prompt is the model's chat template, or plain text for a base model; the spec explains the tags.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.apps.families.plain import PlainFormat, neutral, text_tool
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.types import FailureClass, ToolCall

_SEARCH, _END_SEARCH = "<search>", "</search>"
_ANSWER, _END_ANSWER = "<answer>", "</answer>"
_INFORMATION, _END_INFORMATION = "<information>", "</information>"
_FORM = f"{_SEARCH}the query{_END_SEARCH} or {_ANSWER}the answer{_END_ANSWER}"
_NAMES = "search|answer|information|think"

RESULT_TAGS = re.compile(rf"(<)(/?(?:{_NAMES})>)", re.IGNORECASE)
"""The tags that a result may not hold as they are."""
_GRAMMAR = Grammar(
    tag=re.compile(rf"(</?(?:{_NAMES})>)"),
    rehearsal=re.compile(rf"{_SEARCH}(?:.*?{_END_SEARCH}|.*)", re.DOTALL),
    messages=messages(
        f"Write {_FORM}.",
        unterminated=f"A closing tag is missing. Write {_FORM}.",
        stray_tag=f"This closing tag has no opening one. Write {_FORM}.",
        bad_arguments=f"The query is empty. Write {_SEARCH}the query{_END_SEARCH}.",
        two_answers=f"Write either one {_ANSWER} or a {_SEARCH}, not both, and nothing twice.",
        empty=f"There is neither a search nor an answer. Write {_FORM}.",
    ),
)
_HALLUCINATED = f"{_INFORMATION} is given to you; do not write it. Write {_FORM}."


class SearchR1Format(PlainFormat):
    """The format of Search-R1, for any model."""

    call_marks = Marks.of(r"<search>(?!\s*<[a-z])(?:[^<]|<(?!/?search>)){0,2000}</search>", "<search>")
    near_marks = Marks.of(rf"<[\s/]*(?:{_NAMES})\b[^>\n]{{0,20}}>?", "<")
    names_tools = False
    stop_strings = (_END_SEARCH, _END_ANSWER)

    def _bind_tokenizer(self) -> None:
        self._tool = text_tool(self.tools, "search_r1", ("search", "query"))
        super()._bind_tokenizer()

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """`<information>result</information>` for each result, the bare words for each failure of the turn."""
        observed = self.parse(turn, truncated=False).observed if turn else ()
        pieces = []
        for index, result in enumerate(results):
            failed = index < len(observed) and not isinstance(observed[index], ToolCall)
            opening, closing = ("", "") if failed else (_INFORMATION, _END_INFORMATION)
            pieces += [(f"\n\n{opening}", neutral(result, RESULT_TAGS)), (closing, "")]
        return self._follow([*pieces, ("\n\n", "")], closed=closed)

    def _make_scan(self, text: str, truncated: bool) -> _Scan:
        return _Scan(self._ends.cut_from(text), truncated, self, self._tool)

    def write_answer(self, text: str) -> str:
        """The answer as the format marks it."""
        return f"<answer>{text}</answer>"

    def write_call(self, call: ToolCall) -> str:
        """A search; raises RlfError for another tool, and for a query that the tags cannot hold."""
        text = f"{_SEARCH}{call.arguments.get(self._tool[1], '')}{_END_SEARCH}"
        return self._check_written(call, text)


class _Scan(Scan):
    """Reads the searches and the answer of one turn."""

    __slots__ = ("tool",)
    grammar = _GRAMMAR
    marks_answers = True

    def __init__(self, text: str, truncated: bool, chat: ChatFormat, tool: tuple[str, str]) -> None:
        super().__init__(text, truncated, chat)
        self.tool = tool

    def read(self, tag: re.Match[str]) -> int:
        start, body, mark = tag.start(), tag.end(), tag[1]
        if mark.startswith("</"):
            self.fail(FailureClass.STRAY_TAG, start, body)
            return body
        closing = _GRAMMAR.tag.search(self.text, body)
        if closing is None:
            return self.cut(FailureClass.UNTERMINATED, start)
        if closing[1] != f"</{mark[1:]}":
            self.fail(FailureClass.UNTERMINATED, start, closing.start())
            return closing.start()
        self._read_block(mark, start, body, closing)
        return closing.end()

    def _read_block(self, mark: str, start: int, body: int, closing: re.Match[str]) -> None:
        content = self.text[body : closing.start()].strip()
        if mark == _INFORMATION:
            self.fail(FailureClass.BAD_CALL, start, closing.end(), _HALLUCINATED)
        elif mark == _ANSWER and content:
            self.answers.append((body, closing.start()))
        elif mark == _SEARCH and content:
            name, argument = self.tool
            self.found.append((start, ToolCall(name, {argument: content})))
        else:
            kind = FailureClass.BAD_ARGUMENTS if mark == _SEARCH else FailureClass.EMPTY
            self.fail(kind, start, closing.end())
