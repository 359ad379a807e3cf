"""A spec's chat format over its model's own tokenizer, for the commands that look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.chat import FORMATS, ChatFormat, ParsedTurn, detect_format, encode_data
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.core.text import clean
from rlf.data import load_tasks
from rlf.runs.opening import certified
from rlf.runs.plans import check_spec
from rlf.spec.model_files import model_location
from rlf.types import Message, ToolDescription

if TYPE_CHECKING:
    from rlf.chat.format import Certificate
    from rlf.spec.models import RunSpec


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One token of a prompt."""

    id: int
    text: str
    is_special: bool
    """Whether it is an added token, which no data can write."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message of a prompt."""

    role: str
    content: str
    num_tokens: int
    """Of the content alone, as data."""


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """The prompt of the policy, before the first token that it samples."""

    format: str
    reason: str
    """Why it is this format."""
    text: str
    tokens: tuple[ShownToken, ...]
    messages: tuple[ShownMessage, ...]
    tools: tuple[str, ...]
    stop_tokens: tuple[str, ...]

    @property
    def num_special(self) -> int:
        """How many of the tokens are special."""
        return sum(token.is_special for token in self.tokens)


def show_prompt(files: Sequence[Path], overrides: Sequence[str]) -> ShownPrompt:
    """The prompt of the first training row. Raises SpecError or RlfError for what is wrong."""
    from rlf.chat.encoding import Vision, load_processor, markup_ids

    spec, chat = open_chat(files, overrides)
    task = load_tasks(**spec.data.train.model_dump())[0]
    tools = [tool.description_for_model for tool in spec.tools]
    if task.images:
        chat.see(Vision(load_processor(model_location(spec.model.path))))
    ids, special = chat.prompt(task.messages, tools), markup_ids(chat.tokenizer)
    chosen = "the spec names it"
    name, reason = detect_format(chat.tokenizer) if spec.chat.format == "auto" else (spec.chat.format, chosen)
    return ShownPrompt(
        format=name,
        reason=reason,
        text=chat.decode(ids if chat.vision is None else chat.vision.collapsed(ids)),
        tokens=tuple(ShownToken(token, chat.decode([token]), token in special) for token in ids),
        messages=tuple(
            ShownMessage(message.role, message.content, len(encode_data(chat.tokenizer, message.content)))
            for message in task.messages
        ),
        tools=tuple(tool.name for tool in tools),
        stop_tokens=tuple(chat.decode([token]) for token in chat.stop_token_ids),
    )


def certify_spec(files: Sequence[Path], overrides: Sequence[str]) -> Certificate:
    """Plays a spec's certificate again. Raises CheckError with what differs."""
    spec, chat = open_chat(files, overrides)
    return certified(spec, chat)


def open_chat(files: Sequence[Path], overrides: Sequence[str]) -> tuple[RunSpec, ChatFormat]:
    """A checked spec and its chat format over the tokenizer of its model."""
    from rlf.chat.encoding import load_tokenizer
    from rlf.training.harness import build_chat

    spec = check_spec(files, overrides, trains=False).plan.spec
    return spec, build_chat(spec, load_tokenizer(model_location(spec.model.path)))


# Turns and prompts of a chat format, outside of a run.


@dataclass(frozen=True, slots=True)
class Prompt(Jsonable):
    """The prompt of a policy, before the first token that it samples."""

    format: str
    text: str
    """With special tokens."""
    tokens: tuple[int, ...]
    stop_tokens: tuple[str, ...]
    """Those that end a turn."""


def render_prompt(
    messages: Sequence[Message], name: str, tools: Sequence[ToolDescription], model: str | None
) -> Prompt:
    """The prompt of a conversation. Raises RlfError for a format or model that cannot be had."""
    if model is None:
        chat, chosen = stand_in(_check_name(name), tools), name
    else:
        chat, chosen = _of_model(model, name, tools)
    ids = chat.prompt(messages, tools)
    return Prompt(chosen, chat.decode(ids), tuple(ids), tuple(chat.decode([token]) for token in chat.stop_token_ids))


def _of_model(model: str, name: str, tools: Sequence[ToolDescription]) -> tuple[ChatFormat, str]:
    from rlf.chat.encoding import load_tokenizer

    tokenizer = load_tokenizer(model_location(model))
    chosen = detect_format(tokenizer)[0] if name == "auto" else _check_name(name)
    return FORMATS.get(chosen)(tokenizer, tools), chosen


def parse_turn(text: str, name: str, *, truncated: bool = False, thinking_tag: str = "") -> ParsedTurn:
    """Parses one sampled turn by a format's parser."""
    chat = stand_in(_check_name(name))
    if thinking_tag:
        chat.name_thinking(thinking_tag)
    return chat.parse(clean(text), truncated=truncated)


def _check_name(name: str) -> str:
    if name in ("", "auto"):
        raise RlfError(f"got no chat format; expected one of {', '.join(FORMATS.names())}. Write e.g. `hermes`.")
    return name
