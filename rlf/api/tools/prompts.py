"""The cost of a tool in a spec's prompts: the exact text that the model is shown, and its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlf.api.formats.prompts import open_chat
from rlf.api.specs.certificates import format_name
from rlf.core import RlfError, nearest
from rlf.types import Message


@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """One tool in a spec's chat format."""

    format: str
    text: str
    """The prompt of a question with this tool alone, special tokens included."""
    num_tokens: int
    """Of that prompt."""
    num_added: int
    """How many of them the tool adds to the prompt of the same question without tools."""


def render_tool(name: str, spec_file: Path) -> ToolPrompt:
    """Renders a tool of a spec for the spec's model. Raises SpecError or RlfError for what is wrong."""
    spec, chat = open_chat([spec_file], [])
    found = [tool for tool in spec.tools if tool.name == name]
    if not found:
        known = [tool.name for tool in spec.tools]
        raise RlfError(f"{spec_file}: no tool {name!r}{nearest(name, known)} (known: {', '.join(known) or 'none'}).")
    question = [Message("user", "...")]
    with_tool, without = chat.prompt(question, [found[0].description_for_model]), chat.prompt(question, [])
    return ToolPrompt(format_name(spec, chat), chat.decode(with_tool), len(with_tool), len(with_tool) - len(without))
