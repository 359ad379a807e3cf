"""Turns and prompts of a chat format, outside of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlf.chat import FORMATS, ChatFormat, Parsed, detect_format
from rlf.chat.standin import stand_in
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.core.text import clean
from rlf.types import Message, ToolDescription

__all__ = ["Parsed", "Prompt", "parse_turn", "render_prompt"]


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
    from rlf.chat.tokenizer import load_tokenizer
    from rlf.spec.looking.model_folder import model_location

    tokenizer = load_tokenizer(model_location(model))
    chosen = detect_format(tokenizer)[0] if name == "auto" else _check_name(name)
    return FORMATS.get(chosen)(tokenizer, tools), chosen


def parse_turn(text: str, name: str, *, truncated: bool = False, thinking_tag: str = "") -> Parsed:
    """Parses one sampled turn by a format's parser."""
    chat = stand_in(_check_name(name))
    if thinking_tag:
        chat.name_thinking(thinking_tag)
    return chat.parse(clean(text), truncated=truncated)


def _check_name(name: str) -> str:
    if name in ("", "auto"):
        raise RlfError(f"got no chat format; expected one of {', '.join(FORMATS.names())}. Write e.g. `hermes`.")
    return name
