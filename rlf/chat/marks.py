"""Signs that a text holds a call of some syntax, and the prefilter that makes looking for all of them cheap.

A syntax brings its own expression and the signs of it: texts one of which every match holds. An expression runs only
over a text with one of its signs, so that ordinary prose costs a few substring tests. `harmless` breaks what would open
a role for another model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
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
        first = None
        for pattern in likely:
            place = _first_place(pattern, text, start)
            if place == start:  # none is before it
                return start
            if place is not None and (first is None or place < first):
                first = place
        return first


def _first_place(pattern: re.Pattern[str], text: str, start: int) -> int | None:
    for found in pattern.finditer(text, start):
        if not found.start() or MENTION.match(text, found.start() - 1) is None:
            return found.start()
    return None


def _fold_case(text: str) -> str:
    """The text in lower case, as expressions that ignore case see it."""
    return text.lower() if text.isascii() else text.casefold().replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")


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
        assert self.answer is None or not self.items or not self.observed, f"an answer beside {self.observed}"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every well-formed call outside thinking: safe to run whatever failed beside it."""
        return tuple([item for item in self.items if isinstance(item, ToolCall)])

    @property
    def failures(self) -> tuple[ParseFailure, ...]:
        """Every failure, to be counted."""
        return tuple([item for item in self.items if isinstance(item, ParseFailure)])

    @property
    def observed(self) -> tuple[ToolCall | ParseFailure, ...]:
        """The items that the next observation answers, in order; empty exactly when the turn is an answer.

        A call rehearsed while thinking is answered only when the turn holds nothing else: beside a call or an answer
        the model has already said what it means.
        """
        thought = FailureClass.IN_THINKING
        spoken = tuple([item for item in self.items if isinstance(item, ToolCall) or item.kind is not thought])
        return spoken if spoken or self.answer is not None else self.items


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
        r"<\s?\|\s?(?:START|END)_ACTION\s?\|?>|\btool_name\W{1,4}[\w.\-]+\W{1,6}parameters\W{1,4}\{", "<", "tool_name"
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


# What chat templates and tokenizers take for roles and special tokens, broken up in text of others that another model
# reads: its server may take it for them wherever it stands. The model's own tokens where its tokenizer is on this
# machine, and in any case those of a broad list and whatever has the form of one.

_NAMES = (
    r"s|bos|eos|pad|unk|mask|sep|cls|sop|eop|eod|eot|eom|eoh|eoa|boa|endoftext|image|video|audio|think|thinking"
    r"|user|assistant|system|bot|human|role|answer|response|results|documents|functions|functools|toolcall|nosave|slice|unit|step"
    r"|end_?of_[a-z_]{2,20}|tools?|escape|reponame|filename|boi|eoi|img|box|ref|quad|orig|mode|inclusionai"
    r"|endofturn|global-img|fim-[a-z]{2,8}|pr|name|email|key|password|(?:blank|unused|reserved|special)\d{1,4}|loc\d{4}|seg\d{3}|0x[0-9a-f]{2}"
)
_BRACKETED = (
    r"INST|[gs]?MASK|CLS|SEP|PAD|UNK|[BE]OS|EOT|IMG|IMG_[A-Z]{2,8}|AUDIO|BEGIN_AUDIO|PREFIX|SUFFIX|MIDDLE|ARGS|CALL_ID"
    r"|THINK|TRANSCRIBE|SYSTEM_PROMPT|MODEL_SETTINGS|TOOL_[A-Z]{3,12}|AVAILABLE_TOOLS|USER|BOT|SYSTEM|HUMAN|ASSISTANT"
    r"|AI|@[BE]OS@|(?:start|end)_[a-z]{2,20}_id|unused\d+|extra_id_\d+"
)
_PARTS = (
    r"<(?=\|[^|<>\n]{1,60}\|?>|[a-z_]{3,30}\|>)",  # <|im_start|>, <|turn>, <turn|>
    r"<(?=/?[｜\[][^<>\n]{1,60}>)",  # <｜User｜>, <[end▁of▁sentence]>
    rf"<(?=/?(?i:{_NAMES})>|</?SYS>>)",  # <s>, <user>, <<SYS>>
    # <tool_call>, <_user>, <mask:0>: whatever has a name of parts, but for what C++ has between the same brackets.
    r"<(?=/?(?!\w+_t>)[A-Za-z0-9.-]{0,24}(?:[_▁]|:(?!:))[\w:▁.-]{0,40}>)",
    r"<(?=/?[A-Z]{2,24}\d*>|/?[^\x00-\x7f]{1,12}>)",  # <AI>, <PRE>, <用户>
    rf"\[(?=/?(?:{_BRACKETED})\])",  # [INST]
    r"\[(?=\|[^|\[\]\n]{1,40}\|\]|</?[A-Z]{1,12}>\]|e~\[)",  # [|user|], [<S>], [e~[
    r"<(?=/?(?:function|param))|｜(?=[^｜<>\s]{1,40}｜)",  # <function, which no bracket closes; ｜DSML｜
    r"\](?=~[!a-z]{1,2}[\[\]]|![a-z]~\[|<\][a-z]{2,20}\[>\[)",  # ]~b], ]!p~[, ]<]minimax[>[
    r">(?=>[A-Z]{4,20}<<)",  # >>ANSWER<<
    r"\|(?=\|\|[A-Z_]{4,40}\|\|\||(?:ENDOFTEXT|SPEAKER|NEWLINE)\|)",  # |||EMAIL_ADDRESS|||
    # Roles in plain words, at the beginning of a line.
    r"^#(?=#{1,3} ?(?i:human|user|assistant|system|instruction|response|input) ?:)",
    r"^(?:H(?=uman:|UMAN:)|A(?=ssistant:|SSISTANT:)|U(?=ser:|SER:)|S(?=ystem:|YSTEM:)|G(?=PT4 Correct )|[问答](?=：))",
)
"""The first character of a text that some tokenizer has as a special token, or some chat template gives a meaning."""


@cache
def _compile_pattern(tokens: frozenset[str]) -> re.Pattern[str]:
    """First characters of tokens: so that one which begins inside another is broken too."""
    own = [f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token in sorted(tokens)]
    return re.compile("|".join([*_PARTS, *own]), re.MULTILINE)


_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
