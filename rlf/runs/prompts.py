"""A spec's chat format over its model's own tokenizer, for the commands that look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.chat import ChatFormat, detect_format, encode_data
from rlf.data import load_tasks
from rlf.runs.plans import check_spec
from rlf.spec.model_files import model_location

if TYPE_CHECKING:
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


def open_chat(files: Sequence[Path], overrides: Sequence[str]) -> tuple[RunSpec, ChatFormat]:
    """A checked spec and its chat format over the tokenizer of its model."""
    from rlf.chat.encoding import load_tokenizer
    from rlf.training.harness import build_chat

    spec = check_spec(files, overrides, trains=False).plan.spec
    return spec, build_chat(spec, load_tokenizer(model_location(spec.model.path)))
