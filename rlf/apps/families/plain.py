"""What formats of bare text share, which any model can learn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlf.chat.encoding import encode_data, encode_template, turn_ends
from rlf.chat.examples import readings_of
from rlf.chat.format import ChatFormat
from rlf.core import RlfError
from rlf.types import Message, ToolDescription


class PlainFormat(ChatFormat):
    """A format of one text without tags of a model's own, for any model.

    Prompts and messages of users are as the model's chat template has them; without one, for a base model, the prompt
    is the contents of its messages, a blank line between them and a line break at the end. The spec's own messages
    describe the tools and how to use the format; nothing is added here.
    """

    models = "a chat model or a base model"
    by_name = True

    def _bind_tokenizer(self) -> None:
        if self.tokenizer.chat_template:
            super()._bind_tokenizer()
        else:
            self._ends = turn_ends(self.tokenizer, (), self.name, self.models)
            self.stop_token_ids = self._ends.token_ids

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolDescription]) -> list[int]:
        """The spec's own messages; they describe the tools."""
        if self.tokenizer.chat_template:
            return super().prompt(messages, ())
        text = "\n\n".join(message.content for message in messages) + "\n"
        begin = self.tokenizer.encode("")
        tokens = encode_data(self.tokenizer, text)
        return [*begin, *tokens] if begin == [self.tokenizer.bos_token_id] else tokens

    def user_turn(self, text: str, *, closed: bool, turn: str = "") -> list[int]:
        """As the model's own template has it; raises RlfError for a base model, which has no user."""
        if self.tokenizer.chat_template:
            return super().user_turn(text, closed=closed)
        raise RlfError(
            "chat.format: a base model's text has no user message after an answer, and this world sends one. "
            "Use a chat model, or a world without dialogue."
        )

    def _follow(self, pieces: Sequence[tuple[str, str]], *, closed: bool) -> list[int]:
        """Tokens after a sampled turn: what follows in the same text, or the user's words once the turn is closed.

        Args:
            pieces: text of the format, then data, in turns.
            closed: whether the turn ended with a stop token.
        """
        if closed and self.tokenizer.chat_template:
            text = "".join(own + data for own, data in pieces)
            breaks = len(pieces[0][0]) - len(pieces[0][0].lstrip())
            end = len(text) - (len(pieces[-1][0]) - len(pieces[-1][0].rstrip()) if not pieces[-1][1] else 0)
            return super().user_turn(text[breaks:end], closed=True)
        tokens: list[int] = []
        for own, data in pieces:
            tokens += encode_template(self.tokenizer, own) + encode_data(self.tokenizer, data)
        return tokens


def neutral(text: str, tags: re.Pattern[str]) -> str:
    """The text with a backslash inside each of the format's tags, between groups 1 and 2; the rest as it is."""
    return tags.sub(r"\1\\\2", text)


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
