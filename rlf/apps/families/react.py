"""ReAct: lines that begin with `Thought:`, `Action:`, `Action Input:`, `Observation:` or `Final Answer:`; one text.

How a turn is read:
- `Action:` names a tool, `Action Input:` gives its arguments as a JSON object; a tool with one required argument, a
  string, takes its bare text too. A label inside a JSON string begins no line, so it ends nothing.
- What a `Thought:` says up to the next label, and what `<think>` holds, was thought: nothing in it is run.
- `Final Answer:` holds the answer, to the end of the turn. Two answers, or an answer beside an action, are none; text
  without a label says nothing (EMPTY).
- `Observation:` ends a turn, and what follows it is fed into the same text; nothing the policy writes after it counts.
- In a result the labels and `<think>` are marked as text by a backslash (`Observation\\:`).

The prompt is the model's chat template, or plain text for a base model; the spec's messages describe the tools.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.apps.families.plain import PlainFormat, neutral
from rlf.chat.calls import CallFault, json_at, write_json
from rlf.chat.examples import readings_of
from rlf.chat.format import ChatFormat
from rlf.chat.marks import Marks
from rlf.chat.scan import Grammar, Scan, messages
from rlf.types import FailureClass, ToolCall, ToolDescription

_STOP = "\nObservation:"
_LABELS = "Thought|Action Input|Action|Observation|Final Answer"
_FORM = 'Action: name\nAction Input: {"argument": "value"}'

RESULT_LABELS = re.compile(rf"(^[ \t]*(?:{_LABELS})[ \t]*(?=:)|<(?=/?think>))()", re.MULTILINE | re.IGNORECASE)
"""The labels that a line of a result may not begin with as they are, and the tags of thinking."""
# Labels count only at the beginning of a line: in running text `Action:` is prose.
_LABEL = re.compile(rf"^[ \t]*(?:{_LABELS})[ \t]*:|</?think>", re.MULTILINE)
# The input is on the next line with its own label; without it there is no call.
_NAME = re.compile(r"[ \t]*([\w.\-/]+)[ \t\r]*\n\s*Action Input[ \t]*:[ \t]*")
# Only the end of the line may follow the JSON of an input.
_INPUT_END = re.compile(r"[ \t\r]*(?:\Z|\n|</?think>)")
_GRAMMAR = Grammar(
    tag=re.compile(rf"(</?think>|(?:^|(?<=</think>))[ \t]*(?P<label>{_LABELS})[ \t]*:)", re.MULTILINE),
    rehearsal=re.compile(r"^[ \t]*Action(?: Input)?[ \t]*:.*", re.MULTILINE | re.DOTALL),
    messages=messages(
        f"Write\n{_FORM}",
        unterminated=f"The action has no complete input. Write\n{_FORM}",
        stray_tag=f"This input has no action before it. Write\n{_FORM}",
        bad_arguments=f"The input is no JSON object. Write\n{_FORM}",
        bad_json=f"There is text after the JSON of the input. Write\n{_FORM}",
        two_answers="Write either one Final Answer or an Action, not both, and nothing twice.",
        empty=f"There is neither an action nor a final answer. Write\n{_FORM}\nor\nFinal Answer: the answer",
    ),
)
_HALLUCINATED = "Observations are given to you; do not write what follows `Observation:`."


_BRACE = re.compile(r"[{}]")
"""What no bare text holds: it shows JSON with a slip before it."""


class ReactFormat(PlainFormat):
    """The format of ReAct prompts, for any model."""

    call_marks = Marks.of(r"^[ \t]*Action[ \t]*:[^\n]*\n\s*Action Input[ \t]*:", "action input")
    near_marks = Marks.of(r"\b(?:Action(?: Input)?|Observation)[ \t]*:", "action", "observation")
    stop_strings = (_STOP,)
    thinking_marks = ("Thought: ", "\n")

    def _bind_tokenizer(self) -> None:
        super()._bind_tokenizer()
        self._bare = {tool.name: key for tool in self.tools if (key := _only_text(tool)) is not None}

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """`Observation: result` for each result, the first after the label that stopped the turn where one did."""
        stopped = not closed and (not turn or turn.rstrip().endswith(_STOP.strip()))
        pieces = [("\nObservation: ", neutral(result, RESULT_LABELS)) for result in results]
        pieces[0] = (" " if stopped else pieces[0][0], pieces[0][1])
        return self._follow([*pieces, ("\n", "")], closed=closed)

    def _make_scan(self, text: str, truncated: bool) -> _Scan:
        return _Scan(self._ends.cut_from(text), truncated, self, self._bare)

    def write_answer(self, text: str) -> str:
        """The answer as the format marks it."""
        return f"Final Answer: {text}"

    def write_call(self, call: ToolCall) -> str:
        """An action and its input as JSON; raises RlfError for a name that no line can hold."""
        text = f"Action: {call.name}\nAction Input: {write_json(dict(call.arguments))}"
        return self._check_written(call, text)


def _only_text(tool: ToolDescription) -> str | None:
    """The one required argument of a tool, where it is a string."""
    required = tool.input_schema.get("required", ())
    return required[0] if len(required) == 1 and readings_of(tool).is_text(required[0]) else None


class _Scan(Scan):
    """Reads the actions and the answer of one turn."""

    __slots__ = ("bare",)
    grammar = _GRAMMAR
    marks_answers = True

    def __init__(self, text: str, truncated: bool, chat: ChatFormat, bare: dict[str, str]) -> None:
        super().__init__(text, truncated, chat)
        self.bare = bare

    def read(self, tag: re.Match[str]) -> int:
        start, body, label = tag.start(), tag.end(), tag["label"]
        if label == "Action":
            return self._read_action(start, body)
        following = _LABEL.search(self.text, body)
        end = following.start() if following else len(self.text)
        if label == "Observation":
            if self.text[body:].strip():
                self.fail(FailureClass.BAD_CALL, start, len(self.text), _HALLUCINATED)
            return len(self.text)
        if label == "Action Input":
            self.fail(FailureClass.STRAY_TAG, start, end)
        elif label == "Thought":
            self.thoughts.append(self.text[body:end].strip())
        elif self.text[body:end].strip():
            self.answers.append((body, end))
            # What the budget cut is no answer; the base class sees it as the turn's unfinished tail.
            return body if self.truncated and following is None else end
        return end

    def _read_action(self, start: int, body: int) -> int:
        """Reads one action and its input; returns the position after it."""
        text = self.text
        named = _NAME.match(text, body)
        if named is None:
            return self._record_broken(FailureClass.BAD_CALL, start, body)
        read = json_at(text, named.end())
        if isinstance(read, CallFault):
            return self._bare_text(start, named, read)
        arguments, end = read
        if _INPUT_END.match(text, end) is None:
            return self._record_broken(FailureClass.BAD_JSON, start, end)
        if isinstance(arguments, dict):
            self.found.append((start, ToolCall(named[1], arguments)))
        else:
            self.fail(FailureClass.BAD_ARGUMENTS, start, end)
        return end

    def _bare_text(self, start: int, named: re.Match[str], fault: CallFault) -> int:
        """Reads an input that is no JSON: the text of a tool that takes one, else a failure."""
        following = _LABEL.search(self.text, named.end())
        end = following.start() if following else len(self.text)
        given = self.text[named.end() : end].strip()
        if self.truncated and following is None:
            return self.cut(FailureClass.UNTERMINATED, start)
        is_twice = following is not None and "Input" in following.group()
        if named[1] in self.bare and given and given[0] not in "{[\"'`" and not is_twice and not _BRACE.search(given):
            self.found.append((start, ToolCall(named[1], {self.bare[named[1]]: given})))
        elif given:
            self.fail(FailureClass.BAD_JSON, start, end, f"{fault.message.partition(' Write ')[0]} Write\n{_FORM}")
        else:
            self.fail(FailureClass.UNTERMINATED, start, end)
        return end

    def _record_broken(self, kind: FailureClass, start: int, search_from: int) -> int:
        """Records an action that cannot be read, with its input, up to the next label."""
        following = _LABEL.search(self.text, search_from)
        if following is not None and "Input" in following.group():
            following = _LABEL.search(self.text, following.end())
        elif kind is FailureClass.BAD_CALL:
            kind = FailureClass.UNTERMINATED
        if following is None and self.truncated:
            return self.cut(kind, start)
        end = following.start() if following else len(self.text)
        self.fail(kind, start, end)
        return end
