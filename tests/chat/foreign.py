"""Calls in other models' syntaxes given to a format's parser: none of them may be taken for an answer.

Each syntax is written with every variant of arguments, alone, after words, after thinking, and as the format marks an
answer. Every other format is such a syntax too, and so is every one of `rlf.chat.marks`, whose writers stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlf.chat.calls import write_json
from rlf.chat.examples import NUM_VARIANTS, example_call
from rlf.chat.format import FORMATS, ChatFormat
from rlf.chat.repair import stand_in
from rlf.core import RlfError
from rlf.types import ToolCall, ToolDescription

from .mutants import WRONG, Accepts, Outcome, Reader

Writer = Callable[[ToolCall], str]


@dataclass(slots=True)
class ForeignTally:
    """One syntax as one format reads it, for one tool."""

    format: str
    tool: str
    syntax: str
    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    example: str = ""
    """The first turn with a wrong outcome; empty when there is none."""

    @property
    def is_clean(self) -> bool:
        """Whether no call was taken for an answer, run as another one, or broke the parser."""
        return not any(self.counts[outcome] for outcome in WRONG)


def read_foreign(
    chat: ChatFormat, name: str, tool: ToolDescription, *, accepts: Accepts, reader: Reader | None = None
) -> list[ForeignTally]:
    """One tally per syntax other than the format's own."""
    read: Reader = reader or (lambda text, cut: chat.parse(text, truncated=cut))
    tallies = []
    for syntax, write in foreign_writers(tool).items():
        if syntax == name:
            continue
        tally = ForeignTally(name, tool.name, syntax)
        for text, call in _write_turns(chat, tool, write):
            outcome = _judge_turn(read, accepts, text, call)
            tally.counts[outcome] += 1
            if outcome in WRONG and not tally.example:
                tally.example = text
        tallies.append(tally)
    return tallies


def foreign_writers(tool: ToolDescription) -> Mapping[str, Writer]:
    """Every syntax by name; formats whose calls look like ordinary text are none."""
    writers: dict[str, Writer] = {}
    for name in FORMATS.names():
        try:
            if FORMATS.get(name).call_marks:
                writers[name] = stand_in(name, [tool]).write_call
        except RlfError:
            continue  # a format that cannot call this tool, or one of a package without a stand-in
    return writers | WRITERS


def _write_turns(chat: ChatFormat, tool: ToolDescription, write: Writer) -> Iterator[tuple[str, ToolCall]]:
    opening = chat.thinking_marks[1] if chat.begins_thinking else ""
    for variant in range(NUM_VARIANTS):
        call = example_call(tool, variant)
        try:
            text = write(call)
        except RlfError:
            continue  # arguments that the syntax cannot hold
        thought = chat.thinking_marks[1] if chat.begins_thinking else "".join(chat.thinking_marks)
        for turn in (text, f"I look it up.\n{text}", chat.write_answer(text)):
            yield opening + turn, call
        yield f"{thought}{text}", call


def _judge_turn(read: Reader, accepts: Accepts, text: str, call: ToolCall) -> Outcome:
    try:
        parsed = read(text, False)
    except Exception:  # noqa: BLE001 - any way to fail is what is counted
        return Outcome.CRASH
    wrong = [found for found in parsed.calls if found != call]
    if wrong:
        return Outcome.FALSE_EXECUTION if any(accepts(found) for found in wrong) else Outcome.REFUSED
    if parsed.calls:
        return Outcome.RECALLED
    return Outcome.TYPED if parsed.failures else Outcome.SILENT_LOSS


def _write_text(value: Any) -> str:
    return value if isinstance(value, str) else write_json(value)


def _write_named(call: ToolCall, key: str = "arguments") -> str:
    return write_json({"name": call.name, key: dict(call.arguments)})


def _write_json_between(before: str, after: str, key: str = "arguments") -> Callable[[ToolCall], str]:
    """The JSON of a call between two marks; a mark that ends with a bracket holds a list."""
    return lambda call: f"{before}{_write_named(call, key)}{after}"


def _write_invoke(outer: str, inner: str = "") -> Callable[[ToolCall], str]:
    """Calls in XML with the tool's name and the parameters' names as attributes."""

    def write(call: ToolCall) -> str:
        lines = [f"<{outer}>", f'<{inner}invoke name="{call.name}">']
        for key, value in call.arguments.items():
            lines.append(f'<{inner}parameter name="{key}">{_write_text(value)}</{inner}parameter>')
        return "\n".join([*lines, f"</{inner}invoke>", f"</{outer}>"])

    return write


def _write_functions(outer: str) -> Callable[[ToolCall], str]:
    """Calls as Qwen3-Coder's, in tags of another name."""

    def write(call: ToolCall) -> str:
        values = "".join(f"<parameter={key}>{_write_text(value)}</parameter>" for key, value in call.arguments.items())
        return f"<{outer}><function={call.name}>{values}</function></{outer}>"

    return write


def _write_braces(before: str, after: str, quote: str) -> Callable[[ToolCall], str]:
    """Gemma's notation: keys without quotes, texts between a token of their own."""

    def value_of(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, Mapping):
            return "{" + ",".join(f"{key}:{value_of(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(value_of, value)) + "]"
        return write_json(value)

    return lambda call: f"{before}call:{call.name}{value_of(dict(call.arguments))}{after}"


def _write_python(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def _write_cohere(before: str, after: str, has_id: bool) -> Callable[[ToolCall], str]:
    def write(call: ToolCall) -> str:
        head = {"tool_call_id": "0"} if has_id else {}
        shown = write_json({**head, "tool_name": call.name, "parameters": dict(call.arguments)})
        return f"{before}[\n    {shown}\n]{after}"

    return write


def _key_values(call: ToolCall) -> str:
    pairs = "".join(
        f"<longcat_arg_key>{key}</longcat_arg_key>\n<longcat_arg_value>{_write_text(value)}</longcat_arg_value>\n"
        for key, value in call.arguments.items()
    )
    return f"<longcat_tool_call>{call.name}\n{pairs}</longcat_tool_call>"


WRITERS: Mapping[str, Writer] = {
    "anthropic": _write_invoke("function_calls"),
    "apertus": lambda call: f"<|tools_prefix|>[{write_json({call.name: dict(call.arguments)})}]<|tools_suffix|>",
    "command_a": _write_cohere("<|START_ACTION|>", "<|END_ACTION|>", has_id=True),
    "command_r": _write_cohere("Action: ```json\n", "\n```", has_id=False),
    "deepseek_spaces": lambda call: (
        f"<｜tool calls begin｜><｜tool call begin｜>function<｜tool sep｜>{call.name}\n"
        f"```json\n{write_json(dict(call.arguments))}\n```<｜tool call end｜><｜tool calls end｜>"
    ),
    "functionary": lambda call: f">>>{call.name}\n{write_json(dict(call.arguments))}",
    "function_gemma": _write_braces("<start_function_call>", "<end_function_call>", "<escape>"),
    "functools": _write_json_between("functools[", "]"),
    "gemma3": lambda call: f"```tool_code\n{_write_python(call)}\n```",
    "gemma4": _write_braces("<|tool_call>", "<tool_call|>", '<|"|>'),
    "gigachat": _write_json_between("function call<|role_sep|>\n", ""),
    "granite_20b": _write_json_between("<function_call> ", ""),
    "hunyuan": _write_json_between("<tool_calls>[", "]</tool_calls>"),
    "internlm": _write_json_between("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters"),
    "lfm2": lambda call: f"<|tool_call_start|>[{_write_python(call)}]<|tool_call_end|>",
    "longcat": _key_values,
    "minimax_m1": _write_json_between("<tool_calls>\n", "\n</tool_calls>"),
    "muse": _write_invoke("atem:function_calls", "atem:"),
    "nemotron": _write_json_between("<TOOLCALL>[", "]</TOOLCALL>"),
    "phi4": _write_json_between("<|tool_call|>[", "]<|/tool_call|>"),
    "seed_oss": _write_functions("seed:tool_call"),
    "step3": _write_invoke("steptml:toolcall", "steptml:"),
}
"""The text of a call as the models of a syntax write it, by the syntax."""
