"""A conversation as the model's own template renders it afterwards, compared with what the policy saw.

A trajectory is never rendered again: its turns stay as they were sampled. A template that shows earlier turns in
another way (without their thinking, in another order) would give the model another text in use than in training. That
is found by rendering a played conversation whole. Templates differ in how they want to be told of calls, so each way
is tried; one that renders the same text is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rlf.chat.format import ChatFormat
from rlf.core import CheckError
from rlf.types import Message, ToolCall, ToolDescription

DROPS_THINKING = "the template drops or rewrites the thinking of earlier turns; the trajectory keeps it as sampled"
_ID = re.compile(r"functions\.[\w.\-]+:\d+")
_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Spoken:
    """One turn of a played conversation."""

    text: str
    """As it was sampled, without its stop token."""
    thinking: str
    said: str
    """The answer; empty when the turn calls."""
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]


def differences(
    chat: ChatFormat,
    messages: Sequence[Message],
    turns: Sequence[Spoken],
    tools: Sequence[ToolDescription],
    seen: str,
) -> tuple[str, ...]:
    """What the template would change in the sampled turns of a conversation; nothing when it renders what was seen.

    Raises:
        CheckError: it changes anything but thinking.
    """
    renderings = list(dict.fromkeys(_renderings(chat, messages, turns, tools)))
    if any(_is_whole(text, seen) for text in renderings):
        return ()
    bare = _without_thinking(chat, seen)
    if any(_is_whole(_without_thinking(chat, text), bare) for text in renderings):
        return (DROPS_THINKING,)
    if not renderings:
        raise CheckError("chat: the model's chat template cannot render a conversation with calls and results")
    raise CheckError(_told(max(renderings, key=lambda text: _agreement(text, seen)), seen))


def _is_whole(rendered: str, seen: str) -> bool:
    """Whether a rendering is what was seen, up to what the template writes after the last turn's end."""
    return rendered.startswith(seen) and not rendered[len(seen) :].strip()


def _told(rendered: str, seen: str) -> str:
    at = _agreement(rendered, seen)
    start = max(0, at - _WIDTH // 3)
    return (
        f"chat: the model's chat template renders {rendered[start : at + _WIDTH]!r} where the trajectory has "
        f"{seen[start : at + _WIDTH]!r}; expected the same text. Use a template that keeps turns as they were, or "
        "another `chat.format`."
    )


def _agreement(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (left, right) in pairs if left != right), min(len(one), len(other)))


def _without_thinking(chat: ChatFormat, text: str) -> str:
    opening, closing = (re.escape(mark.strip()) for mark in chat.thinking_marks)
    return re.sub(rf"{opening}.*?{closing}\s*", "", text, flags=re.DOTALL)


def _renderings(
    chat: ChatFormat, messages: Sequence[Message], turns: Sequence[Spoken], tools: Sequence[ToolDescription]
) -> Iterator[str]:
    """Every way to tell a template of the conversation: calls as calls or as text, with each kind of id."""
    from jinja2 import TemplateError

    told = [{"role": message.role, "content": message.content} for message in messages]
    described: list[Any] | None = [tool.as_openai() for tool in tools] or None
    for as_calls, ids in product((True, False), ("text", "short")):
        whole = [*told, *(message for turn in _numbered(turns, as_calls, ids) for message in turn)]
        try:
            text = chat.tokenizer.apply_chat_template(
                whole, tools=described, tokenize=False, add_generation_prompt=False
            )
        except (TemplateError, ValueError, TypeError, KeyError):
            continue
        assert isinstance(text, str), f"rendered to {type(text).__name__}"
        yield text


def _numbered(turns: Sequence[Spoken], as_calls: bool, ids: str) -> Iterator[list[dict[str, Any]]]:
    for turn in turns:
        found = _ID.findall(turn.text) if ids == "text" else []
        names = [found[i] if i < len(found) else f"call{i:05d}" for i in range(len(turn.calls))]
        assistant: dict[str, Any] = {"role": "assistant", "content": turn.said if as_calls else turn.text}
        if as_calls and turn.thinking:
            assistant |= {"reasoning_content": turn.thinking, "thinking": turn.thinking}
        if as_calls and turn.calls:
            assistant["tool_calls"] = [_call(call, id_) for call, id_ in zip(turn.calls, names, strict=True)]
        results = [
            {"role": "tool", "name": call.name, "tool_call_id": id_, "content": result}
            for call, id_, result in zip(turn.calls, names, turn.results, strict=True)
        ]
        yield [assistant, *results]


def _call(call: ToolCall, id_: str) -> dict[str, Any]:
    return {"type": "function", "id": id_, "function": {"name": call.name, "arguments": dict(call.arguments)}}
