"""Sizes of prompts and turns in tokens, rendered and counted with the model's own tokenizer and chat format."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any, TypeAlias

from rlf.chat import FORMATS, ChatFormat, detect_format
from rlf.chat.examples import readings_of
from rlf.chat.format import open_format
from rlf.chat.on_disk import read_tokenizer
from rlf.core import RlfError
from rlf.data import recall
from rlf.environments.kind import DOCUMENTS
from rlf.rewards.normalization import golds
from rlf.spec.model_files import folder_on_disk
from rlf.spec.models import RunSpec
from rlf.types import Message, Task, ToolCall, ToolDescription
from rlf.types.world import shown_tools

MAX_MEASURED = 256
"""Prompts that are counted, evenly over the data: enough for a share, few enough for a second."""
_MAX_CHARACTERS = 4_000_000
"""Of all prompts that are counted: fewer where they are longer."""
MAX_ANSWERS = 64
"""Gold answers that are counted, evenly over the data."""
_NUM_SHORTEST = 8
_LEAST: tuple[Any, ...] = ("a", 0, True, [], {}, None)
"""Short values, one of each type."""


def measure(spec: RunSpec, tasks: Sequence[Task]) -> list[Any] | None:
    """The fields of `PromptSizes`, of prompts rendered as the run will; None without a tokenizer here, or a format.

    Raises RlfError where the chat format cannot be used with the model.
    """
    folder = folder_on_disk(spec.model.path)
    tokenizer = None if folder is None else read_tokenizer(folder)
    if folder is None or tokenizer is None or not tasks:
        return None
    name = detect_format(tokenizer)[0] if spec.chat.format == "auto" else spec.chat.format
    if name not in FORMATS.names():
        return None
    tools = spec.shown_tools
    chat = open_format(name, tokenizer, tools, spec.chat.thinking_tag)
    if spec.env is not None and spec.env.speaks:
        chat.user_turn("a", closed=True)

    def num_tokens(asked: _Asked) -> int:
        messages, names, columns = asked
        shown = shown_tools(spec.env, tools, Task("", (), tools=names, columns=columns))
        return len(chat.prompt([Message(role, content) for role, content in messages], shown))

    column = getattr(spec.env, "column", None)  # of several worlds, which have tools of their own
    named = (column,) if isinstance(column, str) else ()
    spread, shortest, written = recall(_sample_tasks, tasks, *named)
    sizes = [num_tokens(asked) for asked in spread]
    least = min(*sizes, *map(num_tokens, shortest))
    needed = any(term.needs_answer for term in spec.rewards)
    golds_of = written if needed else ()
    answers = tuple(1 + min(len(tokenizer.encode(t, add_special_tokens=False)) for t in row) for row in golds_of if row)
    return [tuple(sizes), least, *_shortest_turn(chat, tools), answers]


_Asked: TypeAlias = tuple[Sequence[tuple[str, str]], tuple[str, ...] | None, dict[str, Any]]
"""Roles and contents of a task's messages, the tools that it may use, and those that its row describes."""


def _sample_tasks(tasks: Sequence[Task], *named: str) -> tuple[list[_Asked], list[_Asked], list[list[str]]]:
    """Prompts and gold answers spread evenly over the tasks, and between them the prompts of the fewest characters."""

    def asked(task: Task) -> _Asked:
        described = {name: task.columns[name] for name in (DOCUMENTS, *named) if name in task.columns}
        return [(message.role, message.content) for message in task.messages], task.tools, described

    def num_characters(task: Task) -> int:
        return sum(len(message.content) for message in task.messages)

    spread = tasks[:: -(-len(tasks) // MAX_MEASURED)]
    while len(spread) > _NUM_SHORTEST and sum(map(num_characters, spread)) > _MAX_CHARACTERS:
        spread = spread[::2]
    answered = [task.answer for task in tasks[:: -(-len(tasks) // MAX_ANSWERS)] if _is_text(task.answer)]
    written = [[gold for gold in golds(answer) if gold.strip()] for answer in answered]
    return [*map(asked, spread)], [*map(asked, nsmallest(_NUM_SHORTEST, tasks, key=num_characters))], written


def _is_text(answer: Any) -> bool:
    """Whether an answer is what a model writes: text, a number, or a list of such."""
    values = answer if isinstance(answer, list | tuple) else (answer,)
    return all(isinstance(value, str | int | float) for value in values)


def _shortest_turn(chat: ChatFormat, tools: Sequence[ToolDescription]) -> tuple[int, str]:
    """Tokens of the shortest call with its end, in words; of one token where no tool can be called so."""
    calls = [(size + 1, tool.name) for tool in tools if (size := _call_size(chat, tool)) is not None]
    if not calls:
        return 2, "an answer of one token with its end"
    size, name = min(calls)
    return size, f"the shortest turn, a call of {name!r},"


def _call_size(chat: ChatFormat, tool: ToolDescription) -> int | None:
    """Tokens of a call with little more than nothing for each required argument; None where it cannot be written."""
    readings = readings_of(tool)
    required = tool.input_schema.get("required", ())
    arguments = {name: next((one for one in _LEAST if readings.takes(name, one)), "a") for name in required}
    try:
        text = chat.write_call(ToolCall(tool.name, arguments))
    except RlfError:
        return None
    return len(chat.tokenizer.encode(text, add_special_tokens=False))
