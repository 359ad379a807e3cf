"""Whether `rollout.max_total_tokens` holds what a trajectory begins with, counted with the model's own tokenizer.

Measured only where the tokenizer is on this machine; nothing is fetched and transformers is not loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlf.chat.settings import PACKAGE
from rlf.core import Fault, RlfError
from rlf.core.identity import remember, stamp_file
from rlf.core.registry import are_own
from rlf.data import OpenedTasks, recall
from rlf.spec.load import LoadedSpec
from rlf.spec.model_files import folder_on_disk
from rlf.spec.models import RunSpec
from rlf.spec.nodes import KeyPath
from rlf.types import Task

MEASURED: tuple[KeyPath, ...] = (
    ("model", "path"),
    ("chat",),
    ("tools",),
    ("env",),
    ("rewards", "[]"),
    ("rollout", "max_total_tokens"),
)
"""Keys that the sizes of prompts and the budget are read from."""


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
    """Sizes of prompts as the run will render them; None where they cannot be counted here.

    That is where the model's tokenizer is not on this machine, the format is none, or images are of a size that only
    the model's processor knows. Of data, a model, tools and a format that are all unchanged, they are remembered.

    Raises RlfError where the chat format cannot be used with the model.
    """

    if recall(most_images, tasks):
        return None

    def find() -> list[Any] | None:
        from rlf.spec.prompt_sizes import measure

        return measure(spec, tasks)

    key = _sizes_key(spec, tasks)
    found = find() if key is None else remember(key, find)
    if found is None:
        return None
    tokens, shortest, turn, turn_words, answers = found
    return PromptSizes(tuple(tokens), shortest, turn, turn_words, tuple(answers))


def _sizes_key(spec: RunSpec, tasks: Sequence[Task]) -> list[Any] | None:
    """All that the sizes depend on; None where not all of it is known to be unchanged."""
    folder = folder_on_disk(spec.model.path)
    if folder is None or not isinstance(tasks, OpenedTasks) or not are_own(PACKAGE):
        return None
    stamps = [stamp_file(file) for file in sorted(folder.iterdir()) if file.is_file()]
    if None in stamps:
        return None
    speaks = spec.env is not None and spec.env.speaks
    tools = [tool.as_openai() for tool in spec.shown_tools]
    answers = any(term.needs_answer for term in spec.rewards)
    return ["sizes", tasks.key, stamps, spec.chat.model_dump(mode="json"), tools, speaks, answers]


def most_images(tasks: Sequence[Task]) -> int:
    """The number of images of the task that has most."""
    return max((len(task.images) for task in tasks), default=0)


MAX_CHARACTERS = 1_000_000
"""Of a prompt that is counted in tokens, whatever the budget: each takes some 200 bytes while it is."""
_CHARACTERS_OF_TOKEN = 32
"""More than what a text has for each of its tokens, but for one of spaces."""


def longest_prompt(tasks: Sequence[Task]) -> tuple[int, str]:
    """The characters of the longest prompt, and its task's id."""
    return max(((sum(len(one.content) for one in task.messages), task.id) for task in tasks), default=(0, ""))


def fits_no_budget(num_characters: int, max_total_tokens: int) -> bool:
    """Whether a prompt is so much longer than the budget that counting its tokens would only take time and memory."""
    return num_characters > max(MAX_CHARACTERS, _CHARACTERS_OF_TOKEN * max_total_tokens)


def check_budget(loaded: LoadedSpec, tasks: Sequence[Task]) -> tuple[list[Fault], PromptSizes | None]:
    """The fault of a token budget that no trajectory fits, or of a chat format that cannot render the prompts.

    With the sizes, where they could be measured.
    """
    budget = loaded.spec.rollout.max_total_tokens
    if not _has_known_tools(loaded.spec) or fits_no_budget(recall(longest_prompt, tasks)[0], budget):
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


def _about_chat(loaded: LoadedSpec, message: str) -> Fault:
    """A format names the key that it is about before its words."""
    keys: dict[str, KeyPath] = {"chat.format": ("chat", "format"), "model.path": ("model", "path")}
    key, _, words = message.partition(": ")
    return loaded.fault(keys[key], words) if key in keys else loaded.fault(keys["model.path"], message)
