"""`rlf.render` and `rlf.parse`: a conversation as a model reads it, and what a sampled turn says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.chat import FORMATS, ChatFormat, ParsedTurn, detect_format
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable, json_value
from rlf.core.redact import clean
from rlf.data.tasks import read_message
from rlf.python.specs import Tool, as_command
from rlf.runs.opening import certified
from rlf.runs.players import open_chat
from rlf.spec.model_files import model_location
from rlf.types import Message, ToolDescription

if TYPE_CHECKING:
    from rlf.chat.format import Certificate


def render(
    messages: str | Sequence[Message | Mapping[str, Any]],
    format: str = "auto",  # noqa: A002 - the spec's word for it
    *,
    tools: Sequence[Tool] = (),
    model: str | None = None,
) -> Prompt:
    """The prompt of a conversation, up to where the policy begins to sample: its text and its exact tokens.

    Args:
        messages: a question, or messages such as `{"role": "user", "content": "..."}`; a key that a prompt does not
            show is refused.
        format: a chat format, e.g. `hermes`; `auto` takes that of the model's own template.
        tools: what the model may call.
        model: a folder or `builtin:tiny`; None: a stand-in for the format, whose tokens are no model's.
    """
    asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    for each in asked:
        if not isinstance(each, Message) and not {"role", "content"} <= each.keys():
            raise RlfError(f"messages: got the keys {', '.join(each)}; expected role and content in each message.")
    try:
        plain = [each if isinstance(each, Message) else read_message(json_value(each)) for each in asked]
    except ValueError as error:
        raise RlfError(f"messages: {error}") from error
    with as_command():
        return render_prompt(plain, format, [tool.for_model() for tool in tools], model)


def parse(text: str, format: str, *, truncated: bool = False, thinking_tag: str = "") -> ParsedTurn:  # noqa: A002
    """Parses one sampled turn by a format's parser: calls, typed failures, thinking, or the answer.

    Args:
        truncated: whether the turn was cut off by its token limit.
        thinking_tag: the tag of thinking; empty for the format's own.
    """
    return parse_turn(text, format, truncated=truncated, thinking_tag=thinking_tag)


def certify_spec(files: Sequence[Path], overrides: Sequence[str]) -> Certificate:
    """Plays a spec's certificate again. Raises CheckError with what differs."""
    spec, chat = open_chat(files, overrides)
    return certified(spec, chat)


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
