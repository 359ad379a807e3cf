"""Whether `rollout.max_total_tokens` holds what a trajectory begins with, counted with the model's own tokenizer.

Measured only where the tokenizer is on this machine; nothing is fetched and transformers is not loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, TypeAlias

from rlf.chat import FORMATS, ChatFormat, detect_format
from rlf.chat.examples import readings_of
from rlf.chat.format import open_format
from rlf.chat.on_disk import read_tokenizer
from rlf.core import Fault, RlfError
from rlf.data import recall
from rlf.rewards.normalization import golds
from rlf.spec.load import LoadedSpec
from rlf.spec.model_files import folder_on_disk
from rlf.spec.models import RunSpec
from rlf.spec.nodes import KeyPath
from rlf.types import Message, Task, ToolCall, ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MEASURED: tuple[KeyPath, ...] = (
    ("model", "path"),
    ("chat",),
    ("tools",),
    ("env",),
    ("rewards", "[]"),
    ("rollout", "max_total_tokens"),
)
"""Keys that the sizes of prompts and the budget are read from."""
MAX_MEASURED = 256
"""Prompts that are counted, evenly over the data: enough for a share, few enough for a second."""
MAX_ANSWERS = 64
"""Gold answers that are counted, evenly over the data."""
_NUM_SHORTEST = 8
_LEAST: tuple[Any, ...] = ("a", 0, True, [], {}, None)
"""Short values, one of each type."""


@dataclass(frozen=True, slots=True)
class PromptSizes:
    """Tokens that trajectories begin with, system message and tools included."""

    tokens: tuple[int, ...]
    """Of the measured prompts."""
    shortest: int
    """Of the shortest prompt that was found: the measured ones and those of the fewest characters."""
    turn: int
    """The shortest turn: a call with its required arguments, or one token, and the token that ends it."""
    turn_words: str
    """That turn in words."""
    answers: tuple[int, ...] = ()
    """Of gold answers, the shortest of each of some rows, with the token that ends a turn; none where no term reads
    them or they are no text."""

    @property
    def least(self) -> int:
        """Tokens below which no trajectory can take a single turn."""
        return self.shortest + self.turn

    def share_cut(self, max_total_tokens: int) -> float:
        """Share of the measured prompts that leave no room for a turn."""
        return sum(size + self.turn > max_total_tokens for size in self.tokens) / len(self.tokens)


def measure_prompts(spec: RunSpec, tasks: Sequence[Task]) -> PromptSizes | None:
    """Renders prompts as the run will; None where they cannot be counted here.

    That is where the model's tokenizer is not on this machine, the format is none, or images are of a size that only
    the model's processor knows.

    Raises RlfError where the chat format cannot be used with the model.
    """
    folder = folder_on_disk(spec.model.path)
    tokenizer = None if folder is None else read_tokenizer(folder)
    if folder is None or tokenizer is None or not tasks or recall(most_images, tasks):
        return None
    name = detect_format(tokenizer)[0] if spec.chat.format == "auto" else spec.chat.format
    if name not in FORMATS.names():
        return None
    tools = spec.shown_tools
    chat = open_format(name, tokenizer, tools, spec.chat.thinking_tag)
    if spec.env is not None and spec.env.speaks:
        chat.user_turn("a", closed=True)

    def num_tokens(asked: _Asked) -> int:
        messages, may_use = asked
        shown = [tool for tool in tools if may_use is None or tool.name in may_use]
        return len(chat.prompt([Message(role, content) for role, content in messages], shown))

    spread, shortest, written = recall(_sample_tasks, tasks)
    sizes = [num_tokens(asked) for asked in spread]
    least = min(*sizes, *map(num_tokens, shortest))
    needed = any(term.needs_answer for term in spec.rewards)
    answers = _answer_sizes(tokenizer, written) if needed else ()
    return PromptSizes(tuple(sizes), least, *_shortest_turn(chat, tools), answers)


def most_images(tasks: Sequence[Task]) -> int:
    """The number of images of the task that has most."""
    return max((len(task.images) for task in tasks), default=0)


_Asked: TypeAlias = tuple[Sequence[tuple[str, str]], Sequence[str] | None]
"""Roles and contents of a task's messages, and the tools that it may use."""


def _sample_tasks(tasks: Sequence[Task]) -> tuple[list[_Asked], list[_Asked], list[list[str]]]:
    """Prompts and gold answers spread evenly over the tasks, and between them the prompts of the fewest characters."""

    def asked(task: Task) -> _Asked:
        return [(message.role, message.content) for message in task.messages], task.tools

    spread = tasks[:: -(-len(tasks) // MAX_MEASURED)]
    answered = [task.answer for task in tasks[:: -(-len(tasks) // MAX_ANSWERS)] if _is_text(task.answer)]
    written = [[gold for gold in golds(answer) if gold.strip()] for answer in answered]
    return [*map(asked, spread)], [*map(asked, nsmallest(_NUM_SHORTEST, tasks, key=_num_characters))], written


def _answer_sizes(tokenizer: PreTrainedTokenizerBase, written: Sequence[Sequence[str]]) -> tuple[int, ...]:
    return tuple(
        1 + min(len(tokenizer.encode(gold, add_special_tokens=False)) for gold in row) for row in written if row
    )


def _is_text(answer: Any) -> bool:
    """Whether an answer is what a model writes: text, a number, or a list of such."""
    values = answer if isinstance(answer, list | tuple) else (answer,)
    return all(isinstance(value, str | int | float) for value in values)


def check_budget(loaded: LoadedSpec, tasks: Sequence[Task]) -> tuple[list[Fault], PromptSizes | None]:
    """The fault of a token budget that no trajectory fits, or of a chat format that cannot render the prompts.

    With the sizes, where they could be measured.
    """
    budget = loaded.spec.rollout.max_total_tokens
    if not _has_known_tools(loaded.spec):
        return [], None
    try:
        sizes = measure_prompts(loaded.spec, tasks)
    except RlfError as error:
        return [_about_chat(loaded, str(error))], None
    if sizes is None or sizes.least <= budget:
        return [], sizes
    message = (
        f"got {budget}; the system prompt, the tools and the shortest question take {sizes.shortest} tokens, and "
        f"{sizes.turn_words} {sizes.turn} more. Write at least {sizes.least}, better the length of a whole trajectory."
    )
    return [loaded.fault(("rollout", "max_total_tokens"), message)], sizes


def _has_known_tools(spec: RunSpec) -> bool:
    """Whether it is known what the model sees; a world that cannot say is reported where worlds are looked at."""
    try:
        return spec.shown_tools is not None
    except RlfError:
        return False


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


def _num_characters(task: Task) -> int:
    return sum(len(message.content) for message in task.messages)


def _about_chat(loaded: LoadedSpec, message: str) -> Fault:
    """A format names the key that it is about before its words."""
    keys: dict[str, KeyPath] = {"chat.format": ("chat", "format"), "model.path": ("model", "path")}
    key, _, words = message.partition(": ")
    return loaded.fault(keys[key], words) if key in keys else loaded.fault(keys["model.path"], message)
