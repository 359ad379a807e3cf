"""Chat formats: how a conversation becomes tokens, and what a sampled turn means.

Rendering gives tokens, never text to be tokenised again: the tokens of turn k+1 are those of turn k as sampled, plus
an observation. Parsing gives calls, failures and the answer types: text that opens a call is never an answer unnoticed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, Self

from rlf.chat.encoding import TurnEnds, decode, encode_template, turn_ends
from rlf.chat.examples import readings_of
from rlf.chat.marks import BARE_OBJECT, FOREIGN, Lookalikes, Marks, ParsedTurn, bare_calls
from rlf.chat.scan import END_THINK, THINK, Scan, opens_thinking
from rlf.chat.settings import remember_of_formats
from rlf.chat.template import CallId, TemplateRenderer, end_of_turn
from rlf.core import Registry, RlfError
from rlf.core.readings import Readings
from rlf.types import FailureClass, Message, RepairKind, ToolCall, ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.chat.vision import Vision

_BROKEN = frozenset(
    {FailureClass.BAD_JSON, FailureClass.BAD_CALL, FailureClass.MISSING_NAME, FailureClass.BAD_ARGUMENTS}
)
_MARGIN = 8
"""Tokens looked at beyond the generation prompt, whose first ones may be merged with what stands before."""
_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')


class ChatFormat(ABC):
    """One model family's grammar, bound to a tokenizer. Pure: no state beyond caches."""

    models: ClassVar[str] = "a chat model"
    """Which models write it, as messages say."""
    asks_for: ClassVar[str] = ""
    """What a template of the format asks the model for, as messages say."""
    vllm_parser: ClassVar[str] = ""
    """vLLM's tool parser of the format, for `--tool-call-parser`; empty where it has none."""
    ends: ClassVar[tuple[str, ...]] = ()
    """Special tokens that end a turn, of which a tokenizer of the format has the first; empty: the template's own."""
    has_generation_prompt: ClassVar[bool] = True
    """Whether the template writes something that lets the model speak."""
    stop_token_ids: tuple[int, ...]
    """Tokens that end a sampled turn; the one sampled stays in the trajectory."""
    stop_strings: tuple[str, ...] = ()
    """Strings that end a sampled turn too; the sampler keeps them in the tokens."""
    call_ends: tuple[str, ...] = ()
    """Strings that end a call, where `chat.stop_after_call` lets sampling stop; empty when calls end with the turn."""
    thinking_marks: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
    """What a sampled turn writes before and after thinking, where the format has any."""
    call_marks: ClassVar[Marks | None] = None
    """What shows a call of this format to every other one, which never takes it for an answer; None where calls look
    like ordinary text."""
    near_marks: ClassVar[Marks | None] = None
    """What only this format takes for a call that was missed."""
    template_marks: ClassVar[tuple[str, ...]] = ()
    """Texts that every chat template of this format has; empty where no template shows it."""
    template_reason: ClassVar[str] = ""
    """Why a template with all of them is of this format, in words for the user."""
    marks_are_shared: ClassVar[bool] = False
    """Whether templates of other formats have them too, and are known by the call marks of those."""
    thinks_in_tags: ClassVar[bool] = True
    """Whether thinking stands in tags, whose name the spec may change."""
    by_name: ClassVar[bool] = False
    """Whether the format asks nothing of the model's template, so that only its name in the spec chooses it."""
    names_tools: ClassVar[bool] = True
    """Whether the model is shown the tools and names them; False: its one tool is known by the way it is written."""
    scan: ClassVar[type[Scan]]
    """What reads a turn in one pass."""
    think: tuple[str, str] = (THINK, END_THINK)
    """The tags of thinking; others than these where the spec names them."""
    begins_thinking: bool = False
    """Whether what stands before a turn has opened thinking; of a new format, as after a question. See `after`."""
    vision: Vision | None = None
    """The processor that turns images into tokens; None: the model gets no images."""
    shows_results: bool = False
    """Whether the images of tools' results are shown too."""
    _ends: TurnEnds
    _renderer: TemplateRenderer
    _generation_prompt: str = ""
    """What lets the model speak after a question."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Sequence[ToolDescription] = ()) -> None:
        self.tokenizer = tokenizer
        self.tools = tuple(tools)
        """The declared tools: formats that write arguments as bare text read their types from the schemas."""
        self._bind_tokenizer()

    def _bind_tokenizer(self) -> None:
        """Takes from the tokenizer and its template what ends a turn and what renders.

        Raises:
            RlfError: the model is not of the format.
        """
        if not self.fits(template_of(self.tokenizer)):
            raise RlfError(
                f"chat.format: {self.name} contradicts the model's chat template, which does not ask for "
                f"{self.asks_for}. Write `chat: {{format: auto}}`, or use {self.models}."
            )
        self._ends = turn_ends(self.tokenizer, self._end_tokens(), self.name, self.models)
        self.stop_token_ids = self._ends.token_ids
        self._renderer = TemplateRenderer(self.tokenizer, self._ends.texts[0])
        if self.has_generation_prompt:
            self._speak_after(self._renderer.generation_prompt)

    def _end_tokens(self) -> Sequence[str]:
        """The special tokens that end a turn; a tokenizer of the format has the first."""
        return self.ends or [end_of_turn(self.tokenizer)]

    @property
    def name(self) -> str:
        """The format's name in a spec."""
        return FORMATS.name_of(type(self))

    @classmethod
    def matches(cls, chat_template: str) -> str | None:
        """Why a chat template is of this format, in words for the user; None where it is not, or only the spec says."""
        if not cls.template_marks or not all(mark in chat_template for mark in cls.template_marks):
            return None
        return None if cls.marks_are_shared and other_call_marks(chat_template, cls) else cls.template_reason

    @classmethod
    def fits(cls, chat_template: str) -> bool:
        """Whether the format can be used with a template."""
        return cls.by_name or cls.matches(chat_template) is not None

    def with_tools(self, tools: Sequence[ToolDescription]) -> Self:
        """The format as it reads calls of other tools."""
        other = copy(self)
        other.tools = tuple(tools)
        for known in ("readings_by_tool", "lookalikes"):
            other.__dict__.pop(known, None)
        return other

    def after(self, context: Sequence[int]) -> Self:
        """The format as it reads the turn that follows a context: some templates open thinking only after questions."""
        speak = self._generation_prompt
        end = context[-len(encode_template(self.tokenizer, speak)) - _MARGIN :]
        begins = _ends_in_thinking(self.tokenizer, tuple(end), speak, self.think)
        if begins == self.begins_thinking:
            return self
        other = copy(self)
        other.begins_thinking = begins
        return other

    def _speak_after(self, generation_prompt: str) -> None:
        """Sets the tokens after which the model generates."""
        self._generation_prompt = generation_prompt
        self.begins_thinking = opens_thinking(generation_prompt, self.think)

    def name_thinking(self, tag: str) -> None:
        """Reads `<tag>` as `<think>` is read. Raises RlfError in a format whose thinking is marked in another way."""
        if not self.thinks_in_tags:
            raise RlfError("chat.thinking_tag: this format marks thinking without a tag. Remove the key.")
        opening, closing = self.thinking_marks
        self.think = (f"<{tag}>", f"</{tag}>")
        self.thinking_marks = (opening.replace(THINK, self.think[0]), closing.replace(END_THINK, self.think[1]))
        self._speak_after(self._generation_prompt)

    def see(self, vision: Vision) -> None:
        """Lets prompts, and results where the template can, hold images. Raises RlfError in a format of bare text."""
        if self.by_name:
            raise RlfError(
                "chat.format: this format takes no images. Write `chat: {format: auto}` for the model's own format, or "
                "remove the images."
            )
        self.vision = self._renderer.vision = vision
        self.shows_results = self._renderer.shows_results

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolDescription]) -> list[int]:
        """Tokens of a conversation up to where the policy begins to sample; contents are data, system text is not."""
        return self._renderer.prompt(messages, tools)

    def observation(
        self, results: Sequence[str], *, closed: bool, turn: str = "", images: Sequence[Sequence[str]] = ()
    ) -> list[int]:
        """Tokens fed after a sampled turn, to the end of the next generation prompt.

        Args:
            results: at least one; results and corrective texts, as `ParsedTurn.observed` orders them. All are data.
            closed: whether the turn ended with one of `stop_token_ids`; if not, the end of the turn is fed first.
            turn: the text that was parsed, for formats whose results repeat the names or ids of the calls.
            images: the images of each result, where `shows_results` is true; empty when there are none at all.
        """
        calls = self._name_results(results, turn) if self._renderer.names_results else ()
        tokens = self._renderer.observation(results, calls, after_calls=False, images=images)
        return tokens[1:] if closed else tokens

    def user_turn(self, text: str, *, closed: bool, turn: str = "") -> list[int]:
        """Tokens fed after a turn that calls nothing, up to where the policy samples again: the user speaks, as data.

        Args:
            closed: as for `observation`.
            turn: the text of the turn, for formats whose end of a turn says who is next.

        Raises:
            RlfError: the model's template cannot render a user's message after an assistant's.
        """
        tokens = self._renderer.reply(text, self._ends.texts[0])
        return tokens[1:] if closed else tokens

    def find_call(self, text: str, start: int = 0) -> int | None:
        """Where a text first looks like a call from `start` on, in whatever syntax."""
        return self.lookalikes.first(text, start)

    def _name_results(self, results: Sequence[str], turn: str) -> list[CallId]:
        """The name of the call that each result answers; `unknown` for a failure."""
        observed = self.parse(turn, truncated=False).observed[: len(results)] if turn else ()
        names = [item.name if isinstance(item, ToolCall) else "unknown" for item in observed]
        return [CallId(name) for name in names + ["unknown"] * (len(results) - len(names))]

    def parse(self, text: str, *, truncated: bool) -> ParsedTurn:
        """Reads a sampled turn. Never raises.

        Args:
            text: `decode` of the sampled tokens, stop token included.
            truncated: whether the token budget cut the turn.
        """
        return self._make_scan(text, truncated).run()

    def _make_scan(self, text: str, truncated: bool) -> Scan:
        return self.scan(self._ends.cut_from(text), truncated, self)

    @cached_property
    def readings_by_tool(self) -> Mapping[str, Readings]:
        """How the arguments of each tool are read, where a format writes them without their types."""
        return {tool.name: readings_of(tool) for tool in self.tools}

    @cached_property
    def lookalikes(self) -> Lookalikes:
        """What looks like a call and is none: another format's, or of a declared tool without a mark."""
        own = filter(None, (self.call_marks, self.near_marks))  # first: these are what most texts hold
        return Lookalikes([*own, *every_call_marks(), BARE_OBJECT, *bare_calls(self.tools)])

    @abstractmethod
    def write_call(self, call: ToolCall) -> str:
        """The canonical text of a call as a model should write it; `parse` reads it back to the same call."""

    def _check_written(self, call: ToolCall, text: str) -> str:
        """The text of a call, where it reads back as the same call. Raises RlfError for what cannot be written."""
        if self.parse((self.think[1] if self.begins_thinking else "") + text, truncated=False).items == (call,):
            return text
        raise RlfError(
            f"chat.format: {self.name} cannot write the call {call.name!r} with the arguments "
            f"{str(dict(call.arguments))[:80]}. Use a format that writes calls as JSON, e.g. hermes, or other "
            "arguments."
        )

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        """The canonical text of a turn's calls."""
        return "\n".join(self.write_call(call) for call in calls)

    def write_answer(self, text: str) -> str:
        """The canonical text of a final answer."""
        return text

    def restore_tags(self, raw: str) -> tuple[str, frozenset[RepairKind]] | None:
        """The text of a failed call with the tags that it plainly lacks, for `repair: safe`; None where none do."""
        return None

    def is_after_call(self, text: str) -> bool:
        """Whether a turn that ends with one of `call_ends` is after a call, and not inside a string or thinking."""
        items = self.parse(text, truncated=True).items
        if not items or isinstance(items[-1], ToolCall):
            return bool(items)
        last = items[-1]
        # A broken call with a string left open may go on to say that the tag is part of the string.
        return last.kind in _BROKEN and not last.structural and len(_QUOTE.findall(last.raw)) % 2 == 0

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens from anywhere in a conversation, special tokens and every space kept."""
        return decode(self.tokenizer, tokens)


@lru_cache(maxsize=1024)
def _ends_in_thinking(
    tokenizer: PreTrainedTokenizerBase, end: tuple[int, ...], speak: str, think: tuple[str, str]
) -> bool:
    """Whether a context that ends in these tokens has opened thinking; `speak` lets the model speak."""
    text = decode(tokenizer, end)
    opens = text.rstrip().endswith((THINK, think[0]))
    return opens or (opens_thinking(speak, think) and text.endswith(speak))


FORMATS = Registry(
    "chat format",
    "rlf.chat.formats",
    ChatFormat,  # type: ignore[type-abstract]  # the registry never makes an instance of its base
)


@cache
def every_call_marks() -> tuple[Marks, ...]:
    """What shows calls of every format and of every foreign syntax. Formats are loaded where nothing is remembered."""

    def find() -> list[list[str]]:
        own = filter(None, (FORMATS.get(name).call_marks for name in FORMATS.names()))
        return [[marks.pattern.pattern, *marks.signs] for marks in own]

    found = remember_of_formats(["call marks"], find)
    return tuple(dict.fromkeys([*(Marks.of(*each) for each in found), *FOREIGN.values()]))


def find_any_call(text: str, tools: Sequence[ToolDescription]) -> int | None:
    """Where a text first looks like a call, in whatever syntax."""
    return Lookalikes([*every_call_marks(), BARE_OBJECT, *bare_calls(tools)]).first(text)


def other_call_marks(text: str, own: type[ChatFormat]) -> bool:
    """Whether a template's text holds the call marks of a syntax other than a format's own."""
    rest = own.call_marks.pattern.sub("", text) if own.call_marks else text
    return any(marks.pattern.search(rest) for marks in every_call_marks())


def matching_formats(template: str) -> dict[str, str]:
    """The formats that a chat template is of, each with the reason."""
    found = {name: FORMATS.get(name).matches(template) for name in FORMATS.names()}
    return {name: reason for name, reason in found.items() if reason is not None}


def detect_format(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """The one format that the model's chat template is of, and why. Raises RlfError when none or several are."""
    names, template = FORMATS.names(), template_of(tokenizer)
    found = remember_of_formats(["formats", template], partial(matching_formats, template))
    if len(found) == 1:
        return next(iter(found.items()))
    got = "matches " + "; ".join(f"{n} ({r})" for n, r in found.items()) if found else "matches no known chat format"
    raise RlfError(
        f"chat.format: auto: the model's chat template {got}; expected exactly one of {', '.join(names)}. "
        f"Name it, e.g. `chat: {{format: {next(iter(found), names[0])}}}`."
    )


def open_format(
    name: str, tokenizer: PreTrainedTokenizerBase, tools: Sequence[ToolDescription], thinking_tag: str | None = None
) -> ChatFormat:
    """A format by its name, or by the model's template for `auto`. Raises RlfError where it cannot be used with it."""
    chat = FORMATS.get(detect_format(tokenizer)[0] if name == "auto" else name)(tokenizer, tools)
    if thinking_tag is not None:
        chat.name_thinking(thinking_tag)
    return chat


def template_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """The template that renders conversations with tools. Raises RlfError when the tokenizer has none."""
    try:
        template = tokenizer.get_chat_template(tools=[])
    except ValueError as error:
        raise RlfError(
            f"model.path: the tokenizer has no chat template ({str(error).split('!')[0]}); expected one. "
            "Use an instruction-tuned model, or put a `chat_template.jinja` beside its tokenizer."
        ) from error
    assert isinstance(template, str), f"a chat template of type {type(template).__name__}"
    return template


@dataclass(frozen=True, slots=True)
class Certificate:
    """Counts of what was played and found right."""

    format: str
    num_turns: int
    num_tokens: int
    num_sampled: int
    has_thinking: bool
    has_parallel_calls: bool
    checks: tuple[str, ...]
    differences: tuple[str, ...]
    """What the model's template would change in earlier turns, and `chat.history: keep` allows."""
