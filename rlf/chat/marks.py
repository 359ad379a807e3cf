"""Signs that a text holds a call of some syntax, and the prefilter that makes looking for all of them cheap.

A syntax brings its own expression and the signs of it: texts one of which every match holds. An expression runs only
over a text with one of its signs, so that ordinary prose costs a few substring tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from rlf.chat.calls import write_json
from rlf.core.plain_json import Jsonable
from rlf.types import FailureClass, ParseFailure, ToolCall, ToolDescription


@dataclass(frozen=True, slots=True)
class Marks:
    """Signs of a call."""

    pattern: re.Pattern[str]
    signs: tuple[str, ...]
    """In lower case; every match holds one of them, in whatever case."""

    @classmethod
    def of(cls, expression: str, *signs: str) -> Self:
        """The marks of an expression, whose case is ignored and whose `^` is the beginning of a line.

        Without signs it runs over every text.
        """
        return cls(re.compile(expression, re.IGNORECASE | re.MULTILINE), signs or ("",))


BARE_OBJECT = Marks.of(
    r"""\{\s*["'](?:name|function|tool)["']\s*:\s*["'][^"'\n]*["']\s*,\s*["'](?:arguments|parameters|args)["']\s*:"""
    r"""|["'](?:arguments|parameters)["']\s*:\s*\{[^{}]*\}\s*,\s*["']name["']\s*:""",
    "{",
)
"""A call as a bare JSON object, of whatever family: what no answer holds."""
MENTION = re.compile(r"`(?:</?[^<>`\n]{1,40}>|\[/?[A-Z_]{2,20}\])`")
"""A mark alone between backticks: words about a mark, no call."""


def bare_calls(tools: Sequence[ToolDescription]) -> tuple[Marks, ...]:
    """Calls of declared tools without any mark: `f(x=1)` on a line, `f {"x": 1}`, `"tool": "f"`, `<f>{...}`."""
    if not tools:
        return ()
    names = "|".join(sorted((re.escape(tool.name) for tool in tools), key=len, reverse=True))
    expression = (
        rf"""^[ \t>*\-`\["'(]*(?:(?:print|call|await|return)[ (]+)?(?:[a-z_]+\.)?(?:{names})"""
        rf"""(?:\(\s*(?:\)|\w+\s*=(?!=)|["'{{\[]|[^()\n]*\)[`\]\s]*$)|[ \t]*:?\s*\{{)"""
        rf"""|[{{"'“”]\s*(?i:name|function|tool|tool_name|action)\W{{1,6}}(?:{names})\b(?!\s*\w)"""
        rf"""|\b(?:{names})\W{{1,6}}(?i:arguments|parameters|args)\W{{1,6}}[{{\["'“”]"""
        rf"""|<(?:{names})>\s*[<{{]"""
    )
    return (Marks(re.compile(expression, re.MULTILINE), tuple(_fold_case(tool.name) for tool in tools)),)


class Lookalikes:
    """Marks of many syntaxes at once: what looks like a call of any of them."""

    __slots__ = ("_by_sign",)

    def __init__(self, every: Iterable[Marks]) -> None:
        self._by_sign: dict[str, list[re.Pattern[str]]] = {}
        for each in dict.fromkeys(every):
            for sign in each.signs:
                self._by_sign.setdefault(sign, []).append(each.pattern)

    def first(self, text: str, start: int = 0) -> int | None:
        """Where a text first looks like a call, from `start` on; a mark that is only mentioned does not."""
        folded = _fold_case(text[start:])
        likely = [pattern for sign, found in self._by_sign.items() if sign in folded for pattern in found]
        places = [place for pattern in likely if (place := _first_place(pattern, text, start)) is not None]
        return min(places, default=None)


def _first_place(pattern: re.Pattern[str], text: str, start: int) -> int | None:
    for found in pattern.finditer(text, start):
        if not found.start() or MENTION.match(text, found.start() - 1) is None:
            return found.start()
    return None


def _fold_case(text: str) -> str:
    """The text in lower case, as expressions that ignore case see it."""
    return text.lower() if text.isascii() else text.casefold().replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")


NOTHING = Lookalikes(())
"""No syntax: nothing looks like a call."""

# A sampled turn's calls, failures and answer, so typed that no failed call is an answer unnoticed.


@dataclass(frozen=True, slots=True)
class ParsedTurn(Jsonable):
    """The meaning of one sampled turn."""

    items: tuple[ToolCall | ParseFailure, ...] = field(metadata={"json": None})
    """Calls and failures in the order of the text."""
    answer: str | None
    """The final answer; None when the turn calls, or fails in any way but rehearsing a call while thinking."""
    thinking: str
    """What was thought, without its tags; empty when nothing was."""
    JSON_PROPERTIES: ClassVar = ("calls", "failures")

    def __post_init__(self) -> None:
        assert self.items or self.answer is not None, "a turn that says nothing and does not fail"
        assert self.answer is None or not self.observed, f"an answer beside {self.observed}"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every well-formed call outside thinking: safe to run whatever failed beside it."""
        return tuple(item for item in self.items if isinstance(item, ToolCall))

    @property
    def failures(self) -> tuple[ParseFailure, ...]:
        """Every failure, to be counted."""
        return tuple(item for item in self.items if isinstance(item, ParseFailure))

    @property
    def observed(self) -> tuple[ToolCall | ParseFailure, ...]:
        """The items that the next observation answers, in order; empty exactly when the turn is an answer.

        A call rehearsed while thinking is answered only when the turn holds nothing else: beside a call or an answer
        the model has already said what it means.
        """
        spoken = tuple(item for item in self.items if not _is_rehearsal(item))
        return spoken if spoken or self.answer is not None else self.items


def _is_rehearsal(item: ToolCall | ParseFailure) -> bool:
    return isinstance(item, ParseFailure) and item.kind is FailureClass.IN_THINKING


# How models write calls that no chat format here reads: by what they are recognised, and how each is written.
#
# A turn in one of these syntaxes is a typed failure in every format, never an answer. The writers make the corpus that
# tests read. A syntax that a chat format reads stands in the format's own file.
#
# Sources, for the facts alone: the models' chat templates and cards, and the tool parsers of vLLM, SGLang and
# llama.cpp.


@dataclass(frozen=True, slots=True)
class ForeignSyntax:
    """One way to write a call."""

    name: str
    marks: Marks
    """What shows such a call; no answer to a task holds it."""
    write: Callable[[ToolCall], str]
    """The text of a call as the models write it."""


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


_NAMESPACED = Marks.of(r"<\s?/?[\w\-]{1,20}:(?:tool|function)_?calls?\b|<\s?/?\w{1,12}:invoke\b", "<")
_INVOKE = Marks.of(r"<\s?invoke\s+name=", "<")

FOREIGN: tuple[ForeignSyntax, ...] = (
    ForeignSyntax("anthropic", _INVOKE, _write_invoke("function_calls")),
    ForeignSyntax(
        "apertus",
        Marks.of(r"<\s?\|\s?tools[_ ](?:prefix|suffix)\s?\|?>", "<"),
        lambda call: f"<|tools_prefix|>[{write_json({call.name: dict(call.arguments)})}]<|tools_suffix|>",
    ),
    ForeignSyntax(
        "command_a",
        Marks.of(
            r"<\s?\|\s?(?:START|END)_ACTION\s?\|?>|\btool_name\W{1,4}[\w.\-]+\W{1,6}parameters\W{1,4}\{",
            "<",
            "tool_name",
        ),
        _write_cohere("<|START_ACTION|>", "<|END_ACTION|>", has_id=True),
    ),
    ForeignSyntax(
        "command_r",
        Marks.of(r"^[ \t]*Action[ \t]*:\s{0,3}```", "```"),
        _write_cohere("Action: ```json\n", "\n```", has_id=False),
    ),
    ForeignSyntax(
        "deepseek_spaces",
        Marks.of(r"<\s?[|｜]\s?tool[▁_ ]", "<"),
        lambda call: (
            f"<｜tool calls begin｜><｜tool call begin｜>function<｜tool sep｜>{call.name}\n"
            f"```json\n{write_json(dict(call.arguments))}\n```<｜tool call end｜><｜tool calls end｜>"
        ),
    ),
    ForeignSyntax(
        "functionary",
        Marks.of(r"(?<!\S)>>>(?!all\b)[\w.\-]+[ \t]*\n\s{0,8}\{|<\|recipient\|>", ">>>", "<|"),
        lambda call: f">>>{call.name}\n{write_json(dict(call.arguments))}",
    ),
    ForeignSyntax(
        "function_gemma",
        Marks.of(r"<\s?/?(?:start|end)_function_(?:call|response)\b", "<"),
        _write_braces("<start_function_call>", "<end_function_call>", "<escape>"),
    ),
    ForeignSyntax("functools", Marks.of(r"\bfunctools\s?\[\s?\{", "functools"), _write_json_between("functools[", "]")),
    ForeignSyntax(
        "gemma3",
        Marks.of(r"(?<!`)`{3,}+[ \t]*tool_(?:code|call)", "```"),
        lambda call: f"```tool_code\n{_write_python(call)}\n```",
    ),
    ForeignSyntax(
        "gemma4",
        Marks.of(r"<\|tool_call>|<tool_call\|>|^\s{0,3}call:[\w.\-]{1,64}\{", "<", "call:"),
        _write_braces("<|tool_call>", "<tool_call|>", '<|"|>'),
    ),
    ForeignSyntax(
        "gigachat",
        Marks.of(r"\bfunction call<\|role_sep\|>", "<"),
        _write_json_between("function call<|role_sep|>\n", ""),
    ),
    ForeignSyntax("granite_20b", Marks.of(r"<function_call>", "<"), _write_json_between("<function_call> ", "")),
    ForeignSyntax("hunyuan", Marks.of(r"</?tool_calls>", "<"), _write_json_between("<tool_calls>[", "]</tool_calls>")),
    ForeignSyntax(
        "internlm",
        Marks.of(r"<\|action_(?:start|end)\|>|<\|plugin\|>", "<"),
        _write_json_between("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters"),
    ),
    ForeignSyntax(
        "lfm2",
        Marks.of(r"<\|tool_call_(?:start|end)\|>", "<"),
        lambda call: f"<|tool_call_start|>[{_write_python(call)}]<|tool_call_end|>",
    ),
    ForeignSyntax("longcat", Marks.of(r"<\s?/?longcat_(?:tool_call|arg_)", "<"), _key_values),
    ForeignSyntax(
        "minimax_m1", Marks.of(r"</?tool_calls>", "<"), _write_json_between("<tool_calls>\n", "\n</tool_calls>")
    ),
    ForeignSyntax("muse", _NAMESPACED, _write_invoke("atem:function_calls", "atem:")),
    ForeignSyntax("nemotron", Marks.of(r"</?TOOLCALL>", "<"), _write_json_between("<TOOLCALL>[", "]</TOOLCALL>")),
    ForeignSyntax(
        "phi4", Marks.of(r"<\|/?tool_calls?\|>", "<"), _write_json_between("<|tool_call|>[", "]<|/tool_call|>")
    ),
    ForeignSyntax("seed_oss", _NAMESPACED, _write_functions("seed:tool_call")),
    ForeignSyntax("step3", _NAMESPACED, _write_invoke("steptml:toolcall", "steptml:")),
)
"""By name. Several models may share one of these."""
