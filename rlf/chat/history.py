"""A conversation as the model's own template renders it afterwards, compared with what the policy saw.

A trajectory is never rendered again: its turns stay as they were sampled. A template that shows earlier turns in
another way (without their thinking, in another order) would give the model another text in use than in training. That
is found by rendering a played conversation whole. Templates differ in the form in which they take calls, so each way
is tried; one that renders the same text is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from rlf.chat.examples import tools_of_template
from rlf.chat.format import ChatFormat
from rlf.core import CheckError
from rlf.core.text import count_shared
from rlf.types import Message, ToolCall, ToolDescription

DROPS_THINKING = "the template drops or rewrites the thinking of earlier turns; the trajectory keeps it as sampled"
REWRITES = (
    "the template writes earlier turns in another way than they were sampled; the trajectory keeps them as sampled"
)
BREAKS_LINES = "the template breaks lines in another way once they are history; the trajectory keeps them as they were"
MOVES_TOOLS = "the template shows the tools before the last question; the trajectory keeps them before the first"
TELLS_TOOLS = (
    "the template does not know tools, so the format describes them and the rest is not compared with the template"
)
LEFT_OUT = "[...]"
"""Stands for a result that a full context leaves out."""
ASKS = "[The context is full. Say what was found and done, and what is left. Only this stays.]"
"""After the last result of a context that a summary is to follow."""
SUMMARY = "Found and done before:"
"""Before a summary, in the prompt of the context that it begins."""
_ID = re.compile(r"functions\.[\w.\-]+:\d+")
_WIDTH = 60


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """One turn of a played conversation."""

    text: str
    """As it was sampled, without its stop token."""
    thinking: str
    said: str
    """The answer; empty when the turn calls."""
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]
    reply: str | None = None
    """The user's next message; None: there is none."""


class PlayedHistory(NamedTuple):
    """A played conversation, for the model's own template to render."""

    chat: ChatFormat
    messages: Sequence[Message]
    turns: Sequence[HistoryTurn]
    tools: Sequence[ToolDescription]

    def differences(self, segments: Sequence[str]) -> tuple[str, ...]:
        """Changes that the template would make to sampled turns; nothing when it renders what was seen.

        Args:
            segments: what was seen, cut into prompt, turn, observation, turn, ..., the last turn with its stop token.

        Raises:
            CheckError: it changes what was not sampled: the prompt, a result, a role, the end of a turn.
        """
        chat, seen = self.chat, "".join(segments)
        renderings = list(dict.fromkeys(self._list_renderings()))
        if any(_is_whole(text, seen) for text in renderings):
            return ()
        prompt = _strip_thinking(chat, segments[0])
        if renderings and not chat.by_name and not any(text.startswith(prompt) for text in renderings):
            without_tools = self._replace(tools=())
            if without_tools._moves_tools(segments):
                return (MOVES_TOOLS,)
            if set(renderings) != set(without_tools._list_renderings()):
                raise CheckError(_show_difference(_nearest_rendering(renderings, seen), seen))
            return (TELLS_TOOLS,)
        bare = _without_thinking(chat, seen)
        if any(_is_whole(_without_thinking(chat, text), bare) for text in renderings):
            return (DROPS_THINKING,)
        if any(_holds_turns(chat, text, segments[2:-1:2], self.turns[-1].said) for text in renderings):
            return (REWRITES,)
        if any(_is_whole(text.replace("\n", ""), seen.replace("\n", "")) for text in renderings):
            return (BREAKS_LINES,)
        if not renderings:
            raise CheckError("chat: the model's chat template cannot render a conversation with calls and results")
        raise CheckError(_show_difference(_nearest_rendering(renderings, seen), seen))

    def _moves_tools(self, segments: Sequence[str]) -> bool:
        """Whether a dialogue is rendered as it was seen but for the tools, which move once the user has spoken."""
        if all(turn.reply is None for turn in self.turns):
            return False
        bare = "".join((self.chat.decode(self.chat.prompt(self.messages, ())), *segments[1:]))
        return any(_is_whole(text, bare) for text in self._list_renderings())

    def is_shown(self, seen: str) -> bool:
        """Whether the template shows a conversation so to a model that is to speak next."""
        return seen in self._list_renderings(speaks_next=True)

    def _list_renderings(self, *, speaks_next: bool = False) -> Iterator[str]:
        """Every form in which a template can take the conversation: calls as calls or as text, with each kind of id."""
        from jinja2 import TemplateError

        begun = [{"role": message.role, "content": message.content} for message in self.messages]
        described = [tool.as_openai() for tool in self.tools]
        for as_calls, ids in product((True, False), ("text", "short", "digits")):
            whole = [*begun, *(message for turn in _number_calls(self.turns, as_calls, ids) for message in turn)]

            def render(shown: list[Any], messages: list[Any] = whole) -> str:
                text = self.chat.tokenizer.apply_chat_template(
                    messages, tools=shown or None, tokenize=False, add_generation_prompt=speaks_next
                )
                assert isinstance(text, str), f"rendered to {type(text).__name__}"
                return text

            try:
                text = render(tools_of_template(described, render))
            except (TemplateError, ValueError, TypeError, KeyError):
                continue
            yield text


def _nearest_rendering(renderings: Sequence[str], seen: str) -> str:
    return max(renderings, key=lambda text: count_shared(text, seen))


def _holds_turns(chat: ChatFormat, rendered: str, observations: Sequence[str], answer: str) -> bool:
    """Whether a rendering has every observation in order, and the end of the last turn after them."""
    position = 0
    for observation in observations:
        text = _strip_thinking(chat, observation)
        found = rendered.find(text, position)
        if found < 0:
            return False
        position = found + len(text)
    position = rendered.find(answer, position)
    stops = [chat.decode([token]) for token in chat.stop_token_ids]
    # Where the next role's mark ends a turn, nothing ends the last one.
    return position >= 0 and (len(stops) > 1 or any(stop in rendered[position:] for stop in stops))


def _strip_thinking(chat: ChatFormat, text: str) -> str:
    """The text without the thinking that it opens, or ends, for the next turn."""
    opening, closing = (mark.strip() for mark in chat.thinking_marks)
    return text.rstrip().removesuffix(closing).rstrip().removesuffix(opening).rstrip()


def _is_whole(rendered: str, seen: str) -> bool:
    """Whether a rendering is what was seen, up to what the template writes after the last turn's end."""
    return rendered.startswith(seen) and not rendered[len(seen) :].strip()


def _show_difference(rendered: str, seen: str) -> str:
    at = count_shared(rendered, seen)
    start = max(0, at - _WIDTH // 3)
    return (
        f"chat: the model's chat template renders {rendered[start : at + _WIDTH]!r} where the trajectory has "
        f"{seen[start : at + _WIDTH]!r}; expected the same text. Use a template that keeps turns as they were, or "
        "another `chat.format`."
    )


def _without_thinking(chat: ChatFormat, text: str) -> str:
    opening, closing = (re.escape(mark.strip()) for mark in chat.thinking_marks)
    return re.sub(rf"{opening}.*?{closing}\s*", "", text, flags=re.DOTALL)


def _number_calls(turns: Sequence[HistoryTurn], as_calls: bool, ids: str) -> Iterator[list[dict[str, Any]]]:
    for turn in turns:
        found = _ID.findall(turn.text) if ids == "text" else []
        made = "{:09d}" if ids == "digits" else "call{:05d}"
        names = [found[i] if i < len(found) else made.format(i) for i in range(len(turn.calls))]
        assistant: dict[str, Any] = {"role": "assistant", "content": turn.said if as_calls else turn.text}
        if as_calls and turn.thinking:
            assistant |= {"reasoning_content": turn.thinking, "thinking": turn.thinking}
        if as_calls and turn.calls:
            assistant["tool_calls"] = [
                {"type": "function", "id": id_, "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call, id_ in zip(turn.calls, names, strict=True)
            ]
        results = [
            {"role": "tool", "name": call.name, "tool_call_id": id_, "content": result}
            for call, id_, result in zip(turn.calls, names, turn.results, strict=True)
        ]
        replies = [] if turn.reply is None else [{"role": "user", "content": turn.reply}]
        yield [assistant, *results, *replies]
