"""`rlf.render` and `rlf.parse`: a conversation as a model reads it, and what a sampled turn says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlf.chat.marks import ParsedTurn
from rlf.core.errors import RlfError
from rlf.core.plain_json import json_value
from rlf.data.tasks import read_message
from rlf.python.specs import as_command
from rlf.python.tools import Tool
from rlf.runs.prompts import Prompt, parse_turn, render_prompt
from rlf.types import Message


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
