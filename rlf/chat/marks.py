"""Signs that a text holds a call of some syntax, and the prefilter that makes looking for all of them cheap.

A syntax brings its own expression and the signs of it: texts one of which every match holds. An expression runs only
over a text with one of its signs, so that ordinary prose costs a few substring tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

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


# Calls that no chat format here reads, by what they are recognised. A turn in one of these syntaxes is a typed failure
# in every format, never an answer; `tests/chat/foreign.py` writes calls in each. A syntax that a chat format reads
# stands in the format's own file. Sources, for the facts alone: the models' chat templates and cards, and the tool
# parsers of vLLM, SGLang and llama.cpp.

_NAMESPACED = Marks.of(r"<\s?/?[\w\-]{1,20}:(?:tool|function)_?calls?\b|<\s?/?\w{1,12}:invoke\b", "<")
_INVOKE = Marks.of(r"<\s?invoke\s+name=", "<")

FOREIGN: Mapping[str, Marks] = {
    "anthropic": _INVOKE,
    "apertus": Marks.of(r"<\s?\|\s?tools[_ ](?:prefix|suffix)\s?\|?>", "<"),
    "command_a": Marks.of(
        r"<\s?\|\s?(?:START|END)_ACTION\s?\|?>|\btool_name\W{1,4}[\w.\-]+\W{1,6}parameters\W{1,4}\{",
        "<",
        "tool_name",
    ),
    "command_r": Marks.of(r"^[ \t]*Action[ \t]*:\s{0,3}```", "```"),
    "deepseek_spaces": Marks.of(r"<\s?[|｜]\s?tool[▁_ ]", "<"),
    "functionary": Marks.of(r"(?<!\S)>>>(?!all\b)[\w.\-]+[ \t]*\n\s{0,8}\{|<\|recipient\|>", ">>>", "<|"),
    "function_gemma": Marks.of(r"<\s?/?(?:start|end)_function_(?:call|response)\b", "<"),
    "functools": Marks.of(r"\bfunctools\s?\[\s?\{", "functools"),
    "gemma3": Marks.of(r"(?<!`)`{3,}+[ \t]*tool_(?:code|call)", "```"),
    "gemma4": Marks.of(r"<\|tool_call>|<tool_call\|>|^\s{0,3}call:[\w.\-]{1,64}\{", "<", "call:"),
    "gigachat": Marks.of(r"\bfunction call<\|role_sep\|>", "<"),
    "granite_20b": Marks.of(r"<function_call>", "<"),
    "hunyuan": Marks.of(r"</?tool_calls>", "<"),
    "internlm": Marks.of(r"<\|action_(?:start|end)\|>|<\|plugin\|>", "<"),
    "lfm2": Marks.of(r"<\|tool_call_(?:start|end)\|>", "<"),
    "longcat": Marks.of(r"<\s?/?longcat_(?:tool_call|arg_)", "<"),
    "minimax_m1": Marks.of(r"</?tool_calls>", "<"),
    "muse": _NAMESPACED,
    "nemotron": Marks.of(r"</?TOOLCALL>", "<"),
    "phi4": Marks.of(r"<\|/?tool_calls?\|>", "<"),
    "seed_oss": _NAMESPACED,
    "step3": _NAMESPACED,
}
"""By the name of a syntax, which several models may share. No answer to a task holds one of these marks."""
