"""Parts of all formats without tags of a model's own: prompts without tools, neutral results, the one tool they call.

The spec's own prompt and system text explain to the model how to use such a format; nothing is added here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlf.chat.encoding import encode_data, encode_template
from rlf.chat.ends import turn_ends
from rlf.chat.schema_text import readings_of
from rlf.chat.template import TemplateRenderer, end_of_turn
from rlf.core import RlfError
from rlf.types import Message, ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class PlainRenderer:
    """Renders with the model's chat template where it has one, as plain text for a base model.

    The plain text of a prompt is the contents of its messages, a blank line between them and a line break at the end.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
        self._tokenizer = tokenizer
        self._end = end_of_turn(tokenizer) if tokenizer.chat_template else ""
        self._renderer = TemplateRenderer(tokenizer, self._end) if self._end else None
        self.ends = turn_ends(tokenizer, [self._end] if self._end else [], name, "a chat model or a base model")
        self.generation_prompt = self._renderer.generation_prompt if self._renderer else ""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of a conversation up to where the policy begins to sample; no tools are described."""
        if self._renderer is not None:
            return self._renderer.prompt(messages, ())
        text = "\n\n".join(message.content for message in messages) + "\n"
        begin = self._tokenizer.encode("")
        tokens = encode_data(self._tokenizer, text)
        return [*begin, *tokens] if begin == [self._tokenizer.bos_token_id] else tokens

    def user_turn(self, text: str, *, closed: bool) -> list[int]:
        """Tokens of the user's next message after a turn that calls nothing. Raises RlfError for a base model."""
        if self._renderer is None:
            raise RlfError(
                "chat.format: a base model's text has no user message after an answer, and this world sends one. "
                "Use a chat model, or a world without dialogue."
            )
        tokens = self._renderer.reply(text, self._end)
        return tokens[1:] if closed else tokens

    def follow(self, pieces: Sequence[tuple[str, str]], *, closed: bool) -> list[int]:
        """Tokens after a sampled turn: what follows in the same text, or the user's words once the turn is closed.

        Args:
            pieces: text of the format, then data, in turns.
            closed: whether the turn ended with a stop token.
        """
        if closed and self._renderer is not None:
            text = "".join(own + data for own, data in pieces)
            breaks = len(pieces[0][0]) - len(pieces[0][0].lstrip())
            end = len(text) - (len(pieces[-1][0]) - len(pieces[-1][0].rstrip()) if not pieces[-1][1] else 0)
            return self._renderer.reply(text[breaks:end], self._end)[1:]
        tokens: list[int] = []
        for own, data in pieces:
            tokens += encode_template(self._tokenizer, own) + encode_data(self._tokenizer, data)
        return tokens


def neutral(text: str, tags: re.Pattern[str]) -> str:
    """The text with a backslash inside each of the format's tags, between groups 1 and 2; the rest as it is."""
    return tags.sub(r"\1\\\2", text)


def fence_around(text: str) -> str:
    """A code fence that the text cannot close: longer than every run of backticks in it."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))


def text_tool(tools: Sequence[ToolDescription], name: str, default: tuple[str, str]) -> tuple[str, str]:
    """The one tool that a format of bare text calls, and its one required argument, a string.

    Raises RlfError for other tools; without any, the format stands alone and the default names what it calls.
    """
    if not tools:
        return default
    arguments = [key for tool in tools for key in tool.input_schema.get("required", ())]
    if len(tools) == 1 and len(arguments) == 1 and readings_of(tools[0]).is_text(arguments[0]):
        return tools[0].name, arguments[0]
    raise RlfError(
        f"chat.format: {name} calls one tool with one required argument, a string; got the tools "
        f"{', '.join(tool.name for tool in tools)} with the required arguments {', '.join(arguments) or 'none'}. "
        "Declare one such tool, or use another `chat.format`."
    )
